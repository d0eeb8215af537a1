//! What the harness plants on the host: decoy secrets in the launcher's environment, files where people keep files,
//! a home folder full of credentials, and folders that anybody may write to. All of it is removed again, by the next
//! run if this one is killed.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use escape_audit_probe::sha256::secret_hash;

use super::journal::{self, Journal, hex, unique};
use super::secrets::{self, Secret};

pub use super::journal::FILE as JOURNAL;

/// What kind of secret a planted file plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Family {
    Cloud,
    Ssh,
    Docker,
    Kubernetes,
    Git,
    Network,
    /// An ordinary file of the host.
    Host,
}

impl Family {
    /// What a file in a home folder is, by its path.
    fn of(path: &str) -> Self {
        let holds = |words: &[&str]| words.iter().any(|word| path.contains(word));
        if holds(&[".ssh/"]) {
            Self::Ssh
        } else if holds(&[".docker/", "containers/"]) {
            Self::Docker
        } else if holds(&[".kube/"]) {
            Self::Kubernetes
        } else if holds(&["git"]) {
            Self::Git
        } else if holds(&["netrc", "npmrc", "pypirc"]) {
            Self::Network
        } else {
            Self::Cloud
        }
    }
}

/// A planted file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planted {
    /// Where it stands on the host.
    pub path: PathBuf,
    /// What it plays.
    pub family: Family,
    /// What it holds: unlike any other file, so that its hash proves where it was read.
    pub content: String,
}

/// A secret that a hash belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The variable's name, or the file's path on the host.
    pub name: String,
    /// One of the user's own, not a decoy.
    pub real: bool,
}

/// Everything that was planted. Dropping it removes it.
#[derive(Debug)]
pub struct Plants {
    /// For the launcher's environment: decoys under names that are unset in the harness's own.
    pub environment: Vec<(String, String)>,
    /// Planted files.
    pub files: Vec<Planted>,
    /// Folders of mode 1777, on two file systems where the machine has them.
    pub drop_dirs: Vec<PathBuf>,
    /// A home folder of ours, with decoys that everybody may read.
    pub home: PathBuf,
    /// The user's own files at the fixed paths that cases name: those that count as secrets.
    pub own_files: Vec<PathBuf>,
    homes: Vec<PathBuf>,
    secrets: Vec<Secret>,
    /// The hashes of all secrets under the nonce that was asked about last.
    hashes: Mutex<(String, HashMap<String, Match>)>,
    journal: PathBuf,
}

/// The names that secrets go by, beside one that nobody has heard of.
const VARIABLES: &[&str] = &[
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "ACTIONS_RUNTIME_TOKEN",
    "ANTHROPIC_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "CI_JOB_TOKEN",
    "DATABASE_PASSWORD",
    "GITHUB_TOKEN",
    "OPENAI_API_KEY",
];

impl Plants {
    /// Plants everything, as far as this user may: a folder that cannot be written to is left out. `run_dir` is the
    /// run's own folder, which other users may enter, and which outlives the plants.
    ///
    /// `watched` are the paths that the cases will look at: a decoy is put at each that lies in a home folder, and the
    /// user's own file there counts as a secret. `given` is what sandboxes are given as their environment: what of it looks
    /// like a secret is one.
    pub fn plant(
        run_dir: &Path,
        watched: &[String],
        given: &[(String, String)],
    ) -> io::Result<Self> {
        let run_dir = fs::canonicalize(run_dir)?;
        let mut journal = Journal::open(&run_dir)?;
        let home = run_dir.join("home");
        let mut plants = Self {
            environment: environment(|name| std::env::var_os(name).is_some()),
            files: Vec::new(),
            drop_dirs: Vec::new(),
            home: home.clone(),
            own_files: Vec::new(),
            homes: secrets::homes(),
            secrets: Vec::new(),
            hashes: Mutex::default(),
            journal: journal.path().to_owned(),
        };
        plants.furnish(&mut journal, &home, watched)?;
        for folder in plants.everyday_folders() {
            for mode in [0o600, 0o644] {
                plants.add(&mut journal, folder.join(unique()), Family::Host, mode);
            }
        }
        for real in &plants.homes.clone() {
            for (folder, family) in [
                (".aws", Family::Cloud),
                (".config/gcloud", Family::Cloud),
                (".ssh", Family::Ssh),
                (".docker", Family::Docker),
                (".kube", Family::Kubernetes),
            ] {
                // Only an extra file in a folder that exists: nothing of the user's is touched.
                let folder = real.join(folder);
                if folder.is_dir() {
                    plants.add(&mut journal, folder.join(unique()), family, 0o644);
                }
            }
        }
        for place in ["/tmp", "/dev/shm"] {
            let folder = Path::new(place).join(unique());
            if journal.make_folder(&folder, 0o1777).is_ok() {
                plants.drop_dirs.push(folder);
            }
        }
        // Where a sandbox is given one of the host's folders on purpose, a file of the host has to lie in it.
        for folder in plants.drop_dirs.clone() {
            plants.add(&mut journal, folder.join(unique()), Family::Host, 0o644);
        }
        plants.learn(watched, given);
        Ok(plants)
    }

    /// The secret that this hash names under this nonce.
    pub fn match_secret(&self, nonce: &str, hash: &str) -> Option<Match> {
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        if hashes.0 != nonce {
            let fresh = self.secrets.iter().map(|secret| {
                let name = secret.name.clone();
                let real = secret.real;
                (secret_hash(nonce, &secret.value), Match { name, real })
            });
            // Of two alike the first counts: a decoy before a real one.
            let fresh: Vec<_> = fresh.collect();
            *hashes = (nonce.to_owned(), fresh.into_iter().rev().collect());
        }
        hashes.1.get(hash).cloned()
    }

    /// The paths that a case means: `{home}` stands for each known home folder, `{planted}` for every planted file of
    /// the host and for what only this host has.
    pub fn expand_path(&self, pattern: &str) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        if pattern == "{planted}" {
            let planted = self.files.iter().map(|file| &file.path);
            let mut all: Vec<String> = planted
                .filter(|path| !path.starts_with(&self.home))
                .map(|path| text(path))
                .collect();
            let real = self.secrets.iter().filter(|secret| secret.real);
            all.extend(
                real.map(|secret| secret.name.clone())
                    .filter(|name| name.starts_with('/')),
            );
            return all;
        }
        if !pattern.contains("{home}") {
            return vec![pattern.to_owned()];
        }
        let mut paths: Vec<String> = [&self.home]
            .into_iter()
            .chain(&self.homes)
            .map(|home| pattern.replace("{home}", &text(home)))
            .collect();
        // A home folder of the host may be mounted where the sandbox has its own.
        paths.push(pattern.replace("{home}", "~"));
        paths
    }

    /// The same bytes with every secret variable's value, planted or real, replaced by its name: what came out of a
    /// sandbox, or was given to one, may hold it.
    pub fn redact(&self, bytes: &[u8]) -> Vec<u8> {
        let mut clean = bytes.to_vec();
        let mut known: Vec<&Secret> = self
            .secrets
            .iter()
            .filter(|secret| secret.value.len() >= 8 && !secret.name.starts_with('/'))
            .collect();
        known.sort_by_key(|secret| std::cmp::Reverse(secret.value.len()));
        for secret in known {
            let name = format!("[{}]", secret.name).into_bytes();
            let mut from = 0;
            while let Some(at) = clean[from..]
                .windows(secret.value.len())
                .position(|window| window == secret.value)
            {
                let start = from + at;
                clean.splice(start..start + secret.value.len(), name.iter().copied());
                from = start + name.len();
            }
        }
        clean
    }

    /// The host's folders into which a file of the host could be written: those made for it, and where people keep
    /// theirs.
    pub fn writable_places(&self) -> Vec<PathBuf> {
        let mut places = self.drop_dirs.clone();
        places.extend(self.everyday_folders());
        places
    }

    /// Whether what the host has at this path is known by its hash.
    pub fn knows(&self, path: &str) -> bool {
        self.secrets.iter().any(|secret| secret.name == path)
    }

    /// The files of the host that carry this token, in their name or, in the canary folders, in what they hold.
    pub fn host_files_with(&self, token: &str) -> Vec<String> {
        let mut found = Vec::new();
        for folder in self.drop_dirs.iter().chain([&self.home]) {
            look(folder, token, 4, true, &mut found);
        }
        let known = [
            "/", "/dev", "/etc", "/home", "/mnt", "/opt", "/root", "/run", "/srv", "/usr", "/var",
            "/var/lib",
        ];
        let mut folders = self.everyday_folders();
        folders.extend(known.map(PathBuf::from));
        folders.sort();
        folders.dedup();
        for folder in folders {
            look(&folder, token, 1, false, &mut found);
        }
        found
    }

    /// Removes everything; what could not be removed is returned. Dropping does the same in silence.
    pub fn remove(self) -> Vec<PathBuf> {
        journal::remove_all(&self.journal)
    }

    /// The home folder of ours, with a decoy wherever a case looks for what a careless user leaves there.
    fn furnish(
        &mut self,
        journal: &mut Journal,
        home: &Path,
        watched: &[String],
    ) -> io::Result<()> {
        journal.make_folder(home, 0o755)?;
        for file in watched.iter().filter_map(|path| secrets::in_home(path)) {
            let path = home.join(file);
            let mut missing: Vec<&Path> = path
                .ancestors()
                .skip(1)
                .take_while(|folder| !folder.exists())
                .collect();
            missing.reverse();
            for folder in missing {
                journal.make_folder(folder, 0o755)?;
            }
            self.add(journal, path.clone(), Family::of(file), 0o644);
        }
        Ok(())
    }

    fn add(&mut self, journal: &mut Journal, path: PathBuf, family: Family, mode: u32) {
        let content = content(family);
        // Where this user may not write, there is nothing to plant.
        if journal.make_file(&path, mode, content.as_bytes()).is_ok() {
            self.files.push(Planted {
                path,
                family,
                content,
            });
        }
    }

    /// Where people, and programs, leave files. Each once.
    fn everyday_folders(&self) -> Vec<PathBuf> {
        let mut folders = self.homes.clone();
        folders.extend(std::env::current_dir());
        folders.extend(["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from));
        folders.extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
        let mut folders: Vec<PathBuf> = folders
            .iter()
            .filter_map(|folder| fs::canonicalize(folder).ok())
            .collect();
        folders.sort();
        folders.dedup();
        folders
    }

    /// All secrets, decoys first.
    fn learn(&mut self, watched: &[String], given: &[(String, String)]) {
        let decoy = |name: String, value: &str| Secret {
            name,
            value: value.as_bytes().to_vec(),
            real: false,
        };
        let variables = self.environment.iter();
        let mut all: Vec<Secret> = variables.map(|(name, v)| decoy(name.clone(), v)).collect();
        let files = self.files.iter();
        all.extend(files.map(|f| decoy(f.path.to_string_lossy().into_owned(), &f.content)));
        // Variables that are not UTF-8 are left out: no service hands out such secrets.
        let own = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        all.extend(secrets::of_environment(own.chain(given.iter().cloned())));
        let own = secrets::of_paths(watched, &self.homes);
        let named = own.iter().filter(|file| watched.contains(&file.name));
        self.own_files = named.map(|file| PathBuf::from(&file.name)).collect();
        all.extend(own);
        all.extend(secrets::of_host());
        self.secrets = all;
    }
}

impl Drop for Plants {
    fn drop(&mut self) {
        journal::remove_all(&self.journal);
    }
}

/// Removes what a killed run planted, by the journal in its folder. What could not be removed is returned. The caller
/// has made sure that the run is dead.
pub fn reap(journal: &Path) -> Vec<PathBuf> {
    journal::remove_all(journal)
}

/// Decoys under names that are not taken, and under one that no list of forbidden names can know.
fn environment(is_taken: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let odd = format!("EA_CANARY_{}", hex(4).to_ascii_uppercase());
    VARIABLES
        .iter()
        .map(|name| (*name).to_owned())
        .chain([odd])
        .filter(|name| !is_taken(name))
        .map(|name| (name, decoy()))
        .collect()
}

fn content(family: Family) -> String {
    let secret = decoy();
    match family {
        Family::Cloud => format!(
            "[default]\naws_access_key_id = escape-audit\naws_secret_access_key = {secret}\n"
        ),
        Family::Ssh => format!(
            "-----BEGIN OPENSSH PRIVATE KEY-----\n{secret}\n-----END OPENSSH PRIVATE KEY-----\n"
        ),
        Family::Docker => {
            format!("{{\"auths\":{{\"registry.invalid\":{{\"auth\":\"{secret}\"}}}}}}\n")
        }
        Family::Kubernetes => format!(
            "apiVersion: v1\nkind: Config\nusers:\n- name: escape-audit\n  user:\n    token: {secret}\n"
        ),
        Family::Git => format!("https://escape-audit:{secret}@git.invalid\n"),
        Family::Network => format!("machine host.invalid login escape-audit password {secret}\n"),
        Family::Host => {
            format!("A canary of escape-audit. It may be deleted once no audit runs.\n{secret}\n")
        }
    }
}

/// A value that says what it is, and that nobody can guess.
fn decoy() -> String {
    format!("escape-audit-decoy-{}", hex(16))
}

/// Looks for the token in the names below a folder, and in what regular files hold. An attacker may have filled the
/// folder: links are not followed, and the search is bounded.
fn look(folder: &Path, token: &str, depth: u32, contents: bool, found: &mut Vec<String>) {
    const ENTRIES: usize = 4096;
    const FOUND: usize = 64;
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.take(ENTRIES).flatten() {
        let (path, kind) = (entry.path(), entry.file_type());
        let named = entry.file_name().to_string_lossy().contains(token);
        let holds = || {
            let is_file = kind.as_ref().is_ok_and(fs::FileType::is_file);
            contents && is_file && secrets::read(&path).is_some_and(|c| contains(&c, token))
        };
        if found.len() < FOUND && (named || holds()) {
            found.push(path.to_string_lossy().into_owned());
        }
        if depth > 1 && kind.as_ref().is_ok_and(fs::FileType::is_dir) {
            look(&path, token, depth - 1, contents, found);
        }
    }
}

fn contains(content: &[u8], token: &str) -> bool {
    content
        .windows(token.len().max(1))
        .any(|window| window == token.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::journal::MARK;
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn plants() -> (tempfile::TempDir, Plants) {
        let run = tempfile::tempdir().unwrap();
        let watched = ["{home}/.ssh/id_ed25519", "{home}/.config/new/deep.db"].map(String::from);
        let plants = Plants::plant(run.path(), &watched, &[]).unwrap();
        (run, plants)
    }

    #[test]
    fn everything_stands_where_it_should_and_is_gone_afterwards() {
        let (run, plants) = plants();
        let all: Vec<PathBuf> = plants.files.iter().map(|f| f.path.clone()).collect();
        let drops = plants.drop_dirs.clone();
        for file in &plants.files {
            assert_eq!(fs::read_to_string(&file.path).unwrap(), file.content);
        }
        for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
            let modes: Vec<u32> = all
                .iter()
                .filter(|path| path.parent() == Some(Path::new(folder)))
                .map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o7777)
                .collect();
            assert_eq!(modes, [0o600, 0o644], "{folder}");
        }
        assert!(
            drops
                .iter()
                .all(|d| fs::metadata(d).unwrap().permissions().mode() & 0o7777 == 0o1777)
        );
        assert!(plants.home.join(".ssh/id_ed25519").is_file());
        assert!(plants.home.join(".config/new/deep.db").is_file());

        assert_eq!(plants.remove(), Vec::<PathBuf>::new());
        assert!(
            all.iter()
                .chain(&drops)
                .all(|path| fs::symlink_metadata(path).is_err())
        );
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_run_left_is_reaped() {
        let (run, plants) = plants();
        let file = plants.files.last().unwrap().path.clone();
        std::mem::forget(plants);
        assert!(file.exists());
        assert!(reap(&run.path().join(JOURNAL)).is_empty());
        assert!(!file.exists());
        assert!(reap(&run.path().join(JOURNAL)).is_empty());
    }

    #[test]
    fn the_users_own_file_at_a_watched_path_is_a_secret() {
        let (run, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = own
            .path()
            .join("deploy.token")
            .to_string_lossy()
            .into_owned();
        fs::write(&path, "a token of the team").unwrap();
        let plants = Plants::plant(run.path(), std::slice::from_ref(&path), &[]).unwrap();
        let hash = secret_hash("n", b"a token of the team");
        let found = plants.match_secret("n", &hash).unwrap();
        assert!(found.real && found.name == path && plants.knows(&path));
    }

    #[test]
    fn a_secret_is_shown_by_its_name() {
        let (_run, plants) = plants();
        let (name, value) = plants.environment[0].clone();
        let said = format!("token={value}; again {value}!");
        let clean = String::from_utf8(plants.redact(said.as_bytes())).unwrap();
        assert_eq!(clean, format!("token=[{name}]; again [{name}]!"));
    }

    #[test]
    fn names_that_are_taken_are_left_alone() {
        let planted = environment(|name| name == "GITHUB_TOKEN");
        assert!(planted.iter().all(|(name, _)| name != "GITHUB_TOKEN"));
        assert!(
            planted
                .iter()
                .any(|(name, _)| name == "AWS_SECRET_ACCESS_KEY")
        );
        assert!(
            planted
                .iter()
                .any(|(name, _)| name.starts_with("EA_CANARY_"))
        );
    }

    #[test]
    fn a_hash_names_its_secret_under_its_own_nonce_only() {
        let (_run, plants) = plants();
        let (name, value) = &plants.environment[0];
        let hash = secret_hash("one", value.as_bytes());
        let found = plants.match_secret("one", &hash).unwrap();
        assert_eq!((&found.name, found.real), (name, false));
        assert_eq!(plants.match_secret("two", &hash), None);
        assert_eq!(plants.match_secret("one", "0000"), None);
        let file = &plants.files[0];
        let hash = secret_hash("two", file.content.as_bytes());
        let found = plants.match_secret("two", &hash).unwrap();
        assert_eq!(found.name, file.path.to_string_lossy());
    }

    #[test]
    fn paths_are_expanded_for_every_home_and_every_planted_file() {
        let (_run, plants) = plants();
        let homes = plants.expand_path("{home}/.netrc");
        assert_eq!(homes[0], plants.home.join(".netrc").to_string_lossy());
        assert_eq!(
            homes.len(),
            2 + plants.homes.len(),
            "the sandbox's own, too"
        );
        assert_eq!(plants.expand_path("/etc/shadow"), ["/etc/shadow"]);
        let planted = plants.expand_path("{planted}");
        assert!(
            planted
                .iter()
                .any(|p| p.starts_with(&format!("/dev/shm/{MARK}")))
        );
        if secrets::read(Path::new("/etc/machine-id")).is_some_and(|id| id.len() > 8) {
            assert!(planted.iter().any(|p| p == "/etc/machine-id"));
        }
    }

    #[test]
    fn a_file_with_the_token_is_found_by_name_or_by_what_it_holds() {
        let (_run, plants) = plants();
        let token = super::super::Token::random();
        assert!(plants.host_files_with(token.as_str()).is_empty());
        let drop = &plants.drop_dirs[0];
        let by_content = drop.join("innocent");
        fs::write(&by_content, format!("... {token}")).unwrap();
        let by_name = drop.join(format!("x-{token}"));
        fs::create_dir(&by_name).unwrap();
        nix::unistd::mkfifo(&drop.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut found = plants.host_files_with(token.as_str());
        found.sort();
        assert_eq!(
            found,
            [by_content.to_string_lossy(), by_name.to_string_lossy()]
        );
    }
}
