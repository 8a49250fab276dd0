//! A small HTTP/1.1 server for pages under test, on this machine's loopback
//! address only.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const MAX_HEAD_BYTES: u64 = 16 << 10;
const MAX_BODY_BYTES: usize = 16 << 20;
const SOCKET_TIMEOUT: Duration = Duration::from_secs(20);

/// What a browser asked for.
#[derive(Debug)]
pub(crate) struct Request {
    /// `GET`, `POST`, ...
    pub(crate) method: String,
    /// The path, without the query, not decoded.
    pub(crate) path: String,
    /// The body, empty if there was none.
    pub(crate) body: Vec<u8>,
}

/// What it gets.
#[derive(Debug)]
pub(crate) struct Response {
    status: &'static str,
    mime: &'static str,
    body: Vec<u8>,
}

impl Response {
    /// A JSON document.
    pub(crate) fn json(text: String) -> Self {
        Self { status: "200 OK", mime: "application/json", body: text.into_bytes() }
    }

    /// An error with a line that says what was wrong.
    pub(crate) fn error(status: &'static str, why: &str) -> Self {
        let body = format!("{why}\n").into_bytes();
        Self { status, mime: "text/plain; charset=utf-8", body }
    }
}

/// Answers requests, on threads of their own, for as long as the process lives.
///
/// # Errors
/// The port is taken, or sockets are not allowed.
pub(crate) fn serve<F>(port: u16, answer: F) -> Result<SocketAddr, String>
where
    F: Fn(&Request) -> Response + Send + Sync + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .map_err(|error| format!("cannot listen on 127.0.0.1:{port}: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                // A browser drops connections as it likes; that is no failure.
                drop(converse(stream, &*answer));
            });
        }
    });
    Ok(address)
}

fn converse(stream: TcpStream, answer: &dyn Fn(&Request) -> Response) -> io::Result<()> {
    stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    stream.set_write_timeout(Some(SOCKET_TIMEOUT))?;
    let mut output = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    let (response, head_only) = match read_request(&mut input)? {
        Ok(request) => (answer(&request), request.method == "HEAD"),
        Err(response) => (response, false),
    };
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        response.status,
        response.mime,
        response.body.len()
    );
    output.write_all(head.as_bytes())?;
    if !head_only {
        output.write_all(&response.body)?;
    }
    output.flush()
}

/// Reads one request; the inner error is an answer to a request that is none.
fn read_request(input: &mut impl BufRead) -> io::Result<Result<Request, Response>> {
    let bad = |why: &str| Ok(Err(Response::error("400 Bad Request", why)));
    let mut head = String::new();
    let mut limited = input.by_ref().take(MAX_HEAD_BYTES);
    loop {
        let start = head.len();
        if limited.read_line(&mut head)? == 0 {
            return bad("the request's head is cut short or too long");
        }
        if head[start..].trim_end().is_empty() {
            break;
        }
    }
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return bad("not an HTTP/1.1 request");
    };
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(Ok(0), |(_, value)| value.trim().parse::<usize>());
    let length = match length {
        Ok(length) if length <= MAX_BODY_BYTES => length,
        Ok(_) => {
            return Ok(Err(Response::error("413 Content Too Large", "the body is too long")));
        }
        Err(_) => return bad("content-length is not a number"),
    };
    let path = target.split(['?', '#']).next().unwrap_or_default().to_owned();
    let method = method.to_owned();
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    Ok(Ok(Request { method, path, body }))
}

/// A file below `folder`. Nothing else is ever served: a path with anything but
/// plain names in it is not looked up.
pub(crate) fn file(folder: &Path, request: &Request) -> Response {
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return Response::error("405 Method Not Allowed", "only GET and HEAD");
    }
    let not_found = || Response::error("404 Not Found", &format!("no {}", request.path));
    let Some(relative) = plain_path(&request.path) else {
        return not_found();
    };
    let path = folder.join(relative);
    match std::fs::read(&path) {
        Ok(body) => Response { status: "200 OK", mime: mime(&path), body },
        Err(_) => not_found(),
    }
}

fn plain_path(path: &str) -> Option<PathBuf> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let relative = path.strip_prefix('/')?;
    let relative = Path::new(if relative.is_empty() { "index.html" } else { relative });
    let plain = relative.components().all(|part| match part {
        Component::Normal(name) => !name.to_string_lossy().starts_with('.'),
        _ => false,
    });
    (plain && path.chars().all(allowed)).then(|| relative.to_owned())
}

fn mime(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        // Compiling while the module streams in works with this type alone.
        Some("wasm") => "application/wasm",
        Some("json") => "application/json",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("txt" | "wgsl") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_the_folder_has_a_path() {
        for path in [
            "/../Cargo.toml",
            "/a/../../b",
            "//etc/passwd",
            "/.git/config",
            "/%2e%2e/x",
            "/a\\..\\b",
            "relative",
            "",
            "/a/./../b",
            "/./..",
        ] {
            assert_eq!(plain_path(path), None, "{path}");
        }
        assert_eq!(plain_path("/"), Some(PathBuf::from("index.html")));
        assert_eq!(plain_path("/a/b-c_1.wasm"), Some(PathBuf::from("a/b-c_1.wasm")));
    }

    #[test]
    fn requests_are_read_with_their_bodies() -> io::Result<()> {
        let mut text = &b"POST /report?x=1 HTTP/1.1\r\ncontent-LENGTH: 3\r\n\r\nabcd"[..];
        let request = read_request(&mut text)?;
        let Ok(request) = request else {
            return Err(io::Error::other("refused"));
        };
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/report"));
        assert_eq!(request.body, b"abc");
        Ok(())
    }

    #[test]
    fn malformed_requests_get_an_answer() -> io::Result<()> {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(20_000));
        for text in [
            "",
            "GET\r\n\r\n",
            "GET / HTTP/1.1 x\r\n\r\n",
            "GET / HTTP/3\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
            &long,
        ] {
            assert!(read_request(&mut text.as_bytes())?.is_err(), "{text:.40}");
        }
        Ok(())
    }

    #[test]
    fn a_served_file_arrives_whole_and_typed() -> Result<(), Box<dyn std::error::Error>> {
        let folder = std::env::temp_dir().join(format!("remat http {}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("x.wasm"), [0, 1, 2])?;
        let served = folder.clone();
        let address = serve(0, move |request| file(&served, request))?;
        let fetch = |path: &str| -> io::Result<Vec<u8>> {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes())?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            Ok(answer)
        };
        let answer = fetch("/x.wasm")?;
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains("Content-Type: application/wasm\r\n"), "{text}");
        assert!(answer.ends_with(&[0, 1, 2]));
        assert!(fetch("/y.wasm")?.starts_with(b"HTTP/1.1 404"));
        std::fs::remove_dir_all(&folder)?;
        Ok(())
    }
}
