//! Compiled code on disk, with what its component asks for and offers: so that neither is found out again.
//!
//! Loading compiled code is as good as running native code: whoever can write an entry owns the process. So an entry counts
//! only if it carries a keyed digest (HMAC-SHA-256) over its content, the component it was compiled from, and the exact
//! engine it is for, under a key that lies in the same directory, readable by the owner alone. Everything else is as if it
//! were not there. No failure here fails a load: it only costs a compilation.

use std::fs::{self, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::NODE_WIT;
use crate::check::{RULES, Surface};

/// Marks the format of an entry and keeps its digests apart from all others.
const MAGIC: &[u8; 16] = b"twice.compiled/2";
/// How long what is said of the component is, before it. Bytes, big-endian.
const LENGTH_BYTES: usize = 8;
const MAC_BYTES: usize = 32;
const KEY_BYTES: usize = 32;
/// Beyond this the oldest entries are removed. Bytes.
const CACHE_BYTES_MAX: u64 = 4 << 30;
/// An entry above this is not read. Bytes; compiled code has about three times the size of its component.
pub(crate) const ENTRY_BYTES_MAX: u64 = 1 << 30;

/// A directory of compiled components that can be trusted.
#[derive(Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
    key: [u8; KEY_BYTES],
    engine: [u8; 32],
    writes: AtomicU64,
}

/// An entry that is ours.
struct Entry {
    surface: Surface,
    bytes: Vec<u8>,
    code_at: usize,
}

impl Entry {
    fn code(&self) -> &[u8] {
        &self.bytes[self.code_at..]
    }
}

impl Cache {
    /// Opens the cache in `dir`, which is made when missing, for the code of `engine`. `None`, with a warning, when the
    /// directory or its key could be written or read by others.
    pub(crate) fn open(dir: &Path, engine: &Engine) -> Option<Self> {
        match open_key(dir) {
            Ok(key) => Some(Self {
                dir: dir.to_owned(),
                key,
                engine: engine_digest(engine),
                writes: AtomicU64::new(0),
            }),
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "compiled components are not cached");
                None
            }
        }
    }

    /// The component with `digest` (hexadecimal), if there is an entry that can be trusted.
    pub(crate) fn load(&self, engine: &Engine, digest: &str) -> Option<(Surface, Component)> {
        let path = self.path(digest);
        let entry = match self.read(&path, digest) {
            Ok(entry) => entry?,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a cache entry is not trusted; compiling anew");
                return None;
            }
        };
        #[expect(
            unsafe_code,
            reason = "deserialising compiled code is sound for what the same engine serialised, which the keyed digest proves"
        )]
        // SAFETY: `entry` is a private copy in memory, and `read` has checked that it is byte for byte what `store` took from
        // `Component::serialize` under this key, for this component and this engine configuration.
        let component = unsafe { Component::deserialize(engine, entry.code()) };
        let component = component
            .inspect_err(|error| {
                tracing::warn!(path = %path.display(), error = format!("{error:#}"), "a cache entry does not load; compiling anew");
            })
            .ok()?;
        Some((entry.surface, component))
    }

    /// Keeps compiled code. A failure is a warning.
    pub(crate) fn store(&self, digest: &str, surface: &Surface, component: &Component) {
        let path = self.path(digest);
        let written = component
            .serialize()
            .map_err(|error| std::io::Error::other(format!("{error:#}")))
            .and_then(|code| self.write(&path, digest, surface, &code))
            .and_then(|()| self.prune());
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "compiled code is not kept");
        }
    }

    fn path(&self, digest: &str) -> PathBuf {
        self.dir.join(format!("{digest}-{}.cwasm", HEXLOWER.encode(&self.engine[..8])))
    }

    fn mac(&self, digest: &str, content: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        mac.update(MAGIC);
        mac.update(&self.engine);
        mac.update(digest.as_bytes());
        content.iter().for_each(|part| mac.update(part));
        mac
    }

    /// `None` when there is no entry, an error when there is one that is not ours.
    fn read(&self, path: &Path, digest: &str) -> std::io::Result<Option<Entry>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len().min(ENTRY_BYTES_MAX);
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        file.take(ENTRY_BYTES_MAX).read_to_end(&mut bytes)?;
        let damaged = || std::io::Error::other("it is not a cache entry");
        let rest = bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_at_checked(MAC_BYTES));
        let (mac, content) = rest.ok_or_else(damaged)?;
        self.mac(digest, &[content])
            .verify_slice(mac)
            .map_err(|_| std::io::Error::other("its keyed digest does not fit"))?;
        let (length, rest) = content.split_first_chunk().ok_or_else(damaged)?;
        let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_| damaged())?;
        let said = rest.get(..length).ok_or_else(damaged)?;
        let surface = serde_json::from_slice(said)?;
        let code_at = bytes.len() - rest.len() + length;
        Ok(Some(Entry { surface, bytes, code_at }))
    }

    fn write(
        &self,
        path: &Path,
        digest: &str,
        surface: &Surface,
        code: &[u8],
    ) -> std::io::Result<()> {
        let said = serde_json::to_vec(surface)?;
        let length: [u8; LENGTH_BYTES] = (said.len() as u64).to_be_bytes();
        let content: [&[u8]; 3] = [&length, &said, code];
        let mac = self.mac(digest, &content).finalize().into_bytes();
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let draft = self.dir.join(format!(".{digest}-{}-{number}", std::process::id()));
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        let written = file
            .write_all(MAGIC)
            .and_then(|()| file.write_all(&mac))
            .and_then(|()| content.iter().try_for_each(|part| file.write_all(part)))
            // Readers see the whole entry or none. A crash may lose it, which the keyed digest finds.
            .and_then(|()| fs::rename(&draft, path));
        if written.is_err() {
            // The draft is of no use, and the first failure is the one to report.
            drop(fs::remove_file(&draft));
        }
        written
    }

    /// Removes the oldest entries while there is too much.
    fn prune(&self) -> std::io::Result<()> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.path().extension().is_some_and(|extension| extension == "cwasm") {
                let meta = entry.metadata()?;
                entries.push((meta.mtime(), meta.len(), entry.path()));
            }
        }
        entries.sort();
        let mut total: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in entries {
            if total <= CACHE_BYTES_MAX {
                break;
            }
            fs::remove_file(path)?;
            total -= bytes;
        }
        Ok(())
    }
}

/// Loads the code that a process of this host's own program has just compiled, and that came through a pipe which nothing else
/// could write to.
pub(crate) fn from_own_process(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    #[expect(
        unsafe_code,
        reason = "deserialising compiled code is sound for what the same program serialised, which it did"
    )]
    // SAFETY: `code` is a private copy of what `compile_here` wrote in a process that ran this program, as the host configured
    // it; that compiler is trusted with this input in this process as well. What was cut off is found by its own lengths.
    unsafe {
        Component::deserialize(engine, code)
    }
}

/// Reads the key; makes one first when there is none.
fn open_key(dir: &Path) -> std::io::Result<[u8; KEY_BYTES]> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let owner = own_uid(dir)?;
    private(&fs::metadata(dir)?, owner, 0o022, "the directory")?;
    let path = dir.join("key");
    if !path.try_exists()? {
        make_key(dir, &path)?;
    }
    private(&fs::symlink_metadata(&path)?, owner, 0o077, "the file `key`")?;
    let mut key = [0; KEY_BYTES];
    File::open(path)?.read_exact(&mut key).map_err(|error| {
        std::io::Error::other(format!(
            "the file `key` cannot be read ({error}); remove it, and a new one is made"
        ))
    })?;
    Ok(key)
}

/// Makes a key that appears as a whole, and never replaces the one that another process made meanwhile.
fn make_key(dir: &Path, path: &Path) -> std::io::Result<()> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(std::io::Error::other)?;
    let draft = dir.join(format!(".key-{}-{}", std::process::id(), HEXLOWER.encode(&key[..4])));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    getrandom::fill(&mut key).map_err(std::io::Error::other)?;
    file.write_all(&key)?;
    file.sync_all()?;
    let linked = fs::hard_link(&draft, path);
    fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The user this process writes files as.
fn own_uid(dir: &Path) -> std::io::Result<u32> {
    let mut name = [0; 8];
    getrandom::fill(&mut name).map_err(std::io::Error::other)?;
    let probe = dir.join(format!(".probe-{}", HEXLOWER.encode(&name)));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&probe)?;
    let uid = file.metadata()?.uid();
    fs::remove_file(&probe)?;
    Ok(uid)
}

fn private(meta: &fs::Metadata, owner: u32, forbidden: u32, what: &str) -> std::io::Result<()> {
    if meta.file_type().is_symlink() {
        return Err(std::io::Error::other(format!("{what} is a symbolic link")));
    }
    if meta.uid() != owner {
        return Err(std::io::Error::other(format!("{what} belongs to another user")));
    }
    if meta.mode() & forbidden != 0 {
        return Err(std::io::Error::other(format!(
            "{what} is open to other users (mode {:o}); make it private, and remove the file `key`",
            meta.mode() & 0o777
        )));
    }
    Ok(())
}

/// Everything that decides whether compiled code, and what is said of its component, fits: wasmtime's version and configuration,
/// our own version, and the rules that components are checked by.
fn engine_digest(engine: &Engine) -> [u8; 32] {
    struct Sink(Sha256);
    impl Hasher for Sink {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut sink = Sink(Sha256::new());
    env!("CARGO_PKG_VERSION").hash(&mut sink);
    (NODE_WIT, RULES).hash(&mut sink);
    engine.precompile_compatibility_hash().hash(&mut sink);
    sink.0.finalize().into()
}
