use super::*;

#[test]
fn every_embedded_file_is_a_case() {
    fn files(dir: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(dir)
            .expect("readable")
            .map(|entry| entry.expect("readable").path());
        entries
            .flat_map(|path| {
                if path.is_dir() {
                    files(&path)
                } else {
                    vec![path]
                }
            })
            .collect()
    }
    let library = Library::load(&[]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("escapes");
    let mut on_disk: Vec<String> = files(&root)
        .iter()
        .map(|path| {
            path.strip_prefix(&root)
                .expect("below")
                .with_extension("")
                .display()
                .to_string()
        })
        .collect();
    on_disk.sort();
    assert_eq!(library.ids(), on_disk);
}
