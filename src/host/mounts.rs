//! Where the host's files appear inside a sandbox: paths translated through bind mounts. Pure but for the reading.
//!
//! A folder of the host that is mounted at another place (`-v $HOME:/workspace`) holds the same files under other
//! names. Both sides' mount tables name the device and the folder on it, so the one translates into the other.

use std::fs;
use std::path::{Path, PathBuf};

/// How many translations of one path are looked at.
const MOST: usize = 64;

/// One line of a mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    device: String,
    root: PathBuf,
    point: PathBuf,
    /// The folders of the host that an overlay shows, the uppermost first.
    layers: Vec<PathBuf>,
}

impl Mount {
    /// Where a path below this folder appears, the folder being what is mounted.
    fn shows(&self, path: &Path, folder: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(folder).ok()?;
        Some(match below.as_os_str().is_empty() {
            true => self.point.clone(),
            false => self.point.join(below),
        })
    }
}

/// The mount tables of the host and of one sandbox.
#[derive(Debug, Clone, Default)]
pub struct Translator {
    host: Vec<Mount>,
    inside: Vec<Mount>,
    /// What was asked for: the host's folder, and where it is to appear.
    binds: Vec<(PathBuf, PathBuf)>,
}

impl Translator {
    /// With the folders of the host that the sandbox was told to show. Its own table may not be seen, and may not tell: a
    /// kernel of its own has its own.
    pub fn with_binds(mut self, binds: impl IntoIterator<Item = (PathBuf, PathBuf)>) -> Self {
        self.binds.extend(binds);
        self
    }

    /// Reads the tables of this process and of a sandbox's.
    pub fn of(pid: i32) -> Self {
        let table = |pid: &str| {
            table(&fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default())
        };
        Self {
            host: table("self"),
            inside: table(&pid.to_string()),
            binds: Vec::new(),
        }
    }

    /// The paths under which a file of the host appears inside, its own one left out.
    pub fn inside(&self, path: &Path) -> Vec<PathBuf> {
        let bound = self.binds.iter().filter_map(|(host, inside)| {
            let below = path.strip_prefix(host).ok()?;
            Some(match below.as_os_str().is_empty() {
                true => inside.clone(),
                false => inside.join(below),
            })
        });
        let mut found: Vec<PathBuf> = bound.chain(self.mounted(path)).collect();
        found.retain(|inside| inside != path);
        found.sort();
        found.dedup();
        found.truncate(MOST);
        found
    }

    fn mounted(&self, path: &Path) -> Vec<PathBuf> {
        // The last mount at the longest point is the one that is seen.
        let Some(home) = self
            .host
            .iter()
            .filter(|mount| path.starts_with(&mount.point))
            .max_by_key(|mount| mount.point.components().count())
        else {
            return Vec::new();
        };
        let Ok(rest) = path.strip_prefix(&home.point) else {
            return Vec::new();
        };
        let on_device = home.root.join(rest);
        let bound = self
            .inside
            .iter()
            .filter(|mount| mount.device == home.device)
            .filter_map(|mount| mount.shows(&on_device, &mount.root));
        let layered = self.inside.iter().flat_map(|mount| {
            let layers = mount.layers.iter();
            layers.filter_map(|layer| mount.shows(path, layer))
        });
        bound.chain(layered).collect()
    }

    /// These paths, and after them those under which the same files appear inside.
    pub fn with_translations(&self, paths: Vec<String>) -> Vec<String> {
        let mut all = paths.clone();
        for path in paths.iter().filter(|path| path.starts_with('/')) {
            for inside in self.inside(Path::new(path)) {
                let inside = inside.to_string_lossy().into_owned();
                if !all.contains(&inside) {
                    all.push(inside);
                }
            }
        }
        all
    }
}

fn table(mountinfo: &str) -> Vec<Mount> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (place, about) = line.split_once(" - ")?;
            let mut fields = place.split(' ').skip(2);
            Some(Mount {
                device: fields.next()?.to_owned(),
                root: unescape(fields.next()?),
                point: unescape(fields.next()?),
                layers: layers(about),
            })
        })
        .collect()
}

/// Of an overlay, the folders that it lays over each other; none of any other mount. A relative one is below a folder that
/// is not told.
fn layers(about: &str) -> Vec<PathBuf> {
    let mut fields = about.split(' ');
    let (Some("overlay"), _, Some(options)) = (fields.next(), fields.next(), fields.next()) else {
        return Vec::new();
    };
    let named = options.split(',').filter_map(|option| {
        let (name, folders) = option.split_once('=')?;
        matches!(name, "lowerdir" | "upperdir").then_some(folders)
    });
    named
        .flat_map(|folders| folders.split(':'))
        .filter(|folder| folder.starts_with('/'))
        .map(unescape)
        .collect()
}

/// The kernel writes spaces, tabs, line feeds and backslashes as `\040`.
fn unescape(field: &str) -> PathBuf {
    let mut text = field.to_owned();
    for (code, plain) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        text = text.replace(code, plain);
    }
    PathBuf::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translator() -> Translator {
        Translator {
            host: table(
                "1 0 254:0 / / rw - ext4 /dev/vda rw\n\
                 2 1 0:30 / /dev/shm rw - tmpfs tmpfs rw\n\
                 3 1 254:1 / /home rw - ext4 /dev/vdb rw",
            ),
            inside: table(
                "9 0 0:99 / / ro - overlay overlay rw\n\
                 10 9 254:1 /me /work\\040space ro - ext4 /dev/vdb rw\n\
                 11 9 254:0 /etc /hostetc ro - ext4 /dev/vda rw\n\
                 12 9 0:30 / /shm rw - tmpfs tmpfs rw\n\
                 13 9 0:50 / /all ro - overlay overlay ro,lowerdir=/home:/srv,upperdir=/up,workdir=/w",
            ),
            binds: Vec::new(),
        }
    }

    #[test]
    fn a_file_is_found_where_its_folder_is_mounted() {
        let inside = |path: &str| translator().inside(Path::new(path));
        assert_eq!(
            inside("/home/me/.ssh/id_rsa"),
            [
                Path::new("/all/me/.ssh/id_rsa"),
                Path::new("/work space/.ssh/id_rsa")
            ]
        );
        assert_eq!(
            inside("/etc/machine-id"),
            [Path::new("/hostetc/machine-id")]
        );
        assert_eq!(inside("/dev/shm/x"), [Path::new("/shm/x")]);
        assert_eq!(
            inside("/home/me"),
            [Path::new("/all/me"), Path::new("/work space")]
        );
    }

    #[test]
    fn what_was_asked_for_counts_where_no_table_is_seen() {
        let asked = [
            ("/".into(), "/host".into()),
            ("/home/me".into(), "/w".into()),
        ];
        let blind = Translator::default().with_binds(asked);
        let key = Path::new("/home/me/.ssh/id_rsa");
        let both = [
            Path::new("/host/home/me/.ssh/id_rsa"),
            Path::new("/w/.ssh/id_rsa"),
        ];
        assert_eq!(blind.inside(key), both);
    }

    #[test]
    fn what_is_not_mounted_is_nowhere() {
        let inside = |path: &str| translator().inside(Path::new(path));
        assert_eq!(
            inside("/home/you/key"),
            [Path::new("/all/you/key")],
            "by the overlay alone"
        );
        assert!(inside("/usr/bin/env").is_empty() && inside("/w/key").is_empty());
    }

    #[test]
    fn the_paths_asked_for_come_first() {
        let all = translator().with_translations(vec!["/etc/shadow".into(), "~/.netrc".into()]);
        assert_eq!(all, ["/etc/shadow", "~/.netrc", "/hostetc/shadow"]);
    }
}
