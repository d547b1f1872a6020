//! URLs, built part by part: whatever an arg holds, it stays the segment or the parameter it was put into.

use url::Url;

use super::template::{Piece, placeholder};

/// Longest URL. Bytes; what common servers take at least, so that a longer one fails here and not somewhere on its way.
const URL_BYTES_MAX: usize = 8_000;

/// The base of a tool's URLs, checked.
pub(super) fn base(text: &str) -> Result<Url, String> {
    let url = Url::parse(text)
        .map_err(|error| format!("it is not a URL ({error}); write it as https://host/prefix"))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(format!("its scheme is {}; use https (or http)", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "it holds a user name or password; put those into a header by secret".to_owned()
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it holds a query or fragment; put parameters into the operation".to_owned());
    }
    Ok(url)
}

/// A URL in both its forms.
pub(super) struct Built {
    /// As sent.
    pub(super) sent: Url,
    /// Without secrets.
    pub(super) shown: String,
}

/// Grows a URL from its base.
pub(super) struct Builder {
    sent: String,
    shown: String,
    separator: char,
    /// Whether there is no path yet, not even `/`.
    bare: bool,
}

impl Builder {
    pub(super) fn new(base: &Url) -> Self {
        let bare = base.path() == "/";
        let base = base.as_str().trim_end_matches('/').to_owned();
        Self { shown: base.clone(), sent: base, separator: '?', bare }
    }

    /// Adds a path segment. An empty one, `.` and `..` would change which resource is meant.
    pub(super) fn segment(&mut self, pieces: &[Piece]) -> Result<(), String> {
        let whole = super::template::joined(pieces);
        if matches!(whole.as_str(), "" | "." | "..") {
            let what = if whole.is_empty() { "empty" } else { whole.as_str() };
            return Err(format!("a segment is {what}, which would name another resource"));
        }
        self.bare = false;
        self.push('/', pieces);
        Ok(())
    }

    /// Adds a query parameter.
    pub(super) fn parameter(&mut self, name: &str, pieces: &[Piece]) {
        self.root();
        let separator = std::mem::replace(&mut self.separator, '&');
        let name = format!("{separator}{}", encoded(name));
        self.sent.push_str(&name);
        self.shown.push_str(&name);
        self.push('=', pieces);
    }

    fn root(&mut self) {
        if std::mem::take(&mut self.bare) {
            self.sent.push('/');
            self.shown.push('/');
        }
    }

    fn push(&mut self, lead: char, pieces: &[Piece]) {
        self.sent.push(lead);
        self.shown.push(lead);
        for piece in pieces {
            let text = encoded(&piece.text);
            self.sent.push_str(&text);
            match &piece.secret {
                Some(name) => self.shown.push_str(&placeholder(name)),
                None => self.shown.push_str(&text),
            }
        }
    }

    /// The URL. It must read back as it was written: a parser that normalises it would send to another place.
    pub(super) fn finish(mut self) -> Result<Built, String> {
        self.root();
        if self.sent.len() > URL_BYTES_MAX {
            return Err(format!("it is over {URL_BYTES_MAX} bytes; send large values in the body"));
        }
        let sent = Url::parse(&self.sent).map_err(|error| format!("it is not a URL: {error}"))?;
        if sent.as_str() != self.sent {
            return Err("it does not read back as it was written".to_owned());
        }
        Ok(Built { sent, shown: self.shown })
    }
}

/// Percent-encodes all but unreserved characters (RFC 3986).
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece(text: &str) -> [Piece; 1] {
        [Piece { text: text.to_owned(), secret: None }]
    }

    proptest! {
        /// No text gets out of its segment or parameter.
        #[test]
        fn text_stays_in_its_place(segment in ".{1,20}", value in ".{0,20}") {
            prop_assume!(segment != "." && segment != "..");
            let base = base("https://api.example.com/v1").unwrap();
            let mut builder = Builder::new(&base);
            builder.segment(&piece("orders")).unwrap();
            builder.segment(&piece(&segment)).unwrap();
            builder.parameter("q", &piece(&value));
            let url = builder.finish().unwrap().sent;
            prop_assert_eq!(url.host_str(), Some("api.example.com"));
            prop_assert_eq!(url.path_segments().unwrap().count(), 3);
            prop_assert_eq!(url.fragment(), None);
            let pairs: Vec<_> = url.query_pairs().collect();
            prop_assert_eq!(pairs.len(), 1);
            prop_assert_eq!(pairs[0].1.as_ref(), value.as_str());
        }
    }

    #[track_caller]
    fn check_refused(text: &str, reason: &str) {
        let error = base(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }

    #[test]
    fn bases_that_hide_something_are_refused() {
        check_refused("ftp://example.com", "scheme");
        check_refused("https://user:pw@example.com", "password");
        check_refused("https://example.com/?a=b", "query");
        check_refused("https://example.com/#x", "fragment");
        check_refused("example.com/v1", "not a URL");
    }

    #[test]
    fn segments_that_name_another_resource_are_refused() {
        let mut builder = Builder::new(&base("https://example.com").unwrap());
        for segment in ["", ".", ".."] {
            assert!(builder.segment(&piece(segment)).is_err(), "{segment:?}");
        }
        builder.segment(&piece("%2e%2e")).unwrap();
        assert_eq!(builder.finish().unwrap().sent.path(), "/%252e%252e");
    }

    #[test]
    fn a_query_alone_gets_a_path() {
        for (text, expected) in [
            ("https://example.com", "https://example.com/?a=1"),
            ("https://example.com/v1/", "https://example.com/v1?a=1"),
        ] {
            let mut builder = Builder::new(&base(text).unwrap());
            builder.parameter("a", &piece("1"));
            assert_eq!(builder.finish().unwrap().sent.as_str(), expected);
        }
    }
}
