//! A Chromium without a window, spoken to by its own protocol.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use futures::{SinkExt, StreamExt};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async, tungstenite::Message};

const PATIENCE: Duration = Duration::from_secs(40);
const PROGRAMS: [&str; 3] = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
/// Nothing is asked of anybody but the page.
const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
];

pub struct Chromium {
    folder: TempDir,
    _process: Child,
}

/// One tab.
pub struct Tab {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    last: u64,
    is_loaded: bool,
    /// What went wrong in the page: errors of scripts, of the policy, of what could not be loaded.
    pub complaints: Vec<String>,
}

impl Chromium {
    pub fn start() -> Self {
        let program = PROGRAMS.into_iter().find(|program| Path::new(program).exists());
        let program = program.expect("there is no Chromium: `make packages` installs it");
        let folder = tempfile::tempdir().unwrap();
        let process = Command::new(program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", folder.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { folder, _process: process }
    }

    /// Where it listens.
    async fn port(&self) -> u16 {
        let (file, begun): (PathBuf, _) = (self.folder.path().join("DevToolsActivePort"), Instant::now());
        loop {
            let told = std::fs::read_to_string(&file).unwrap_or_default();
            if let Some(port) = told.lines().next().and_then(|line| line.parse().ok()) {
                return port;
            }
            assert!(begun.elapsed() < PATIENCE, "Chromium does not begin");
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn tab(&self) -> Tab {
        let port = self.port().await;
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let request = format!("PUT /json/new?about:blank HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let told = timeout(PATIENCE, answered(&mut stream)).await.expect("Chromium does not answer");
        let (socket, _) = connect_async(told["webSocketDebuggerUrl"].as_str().unwrap()).await.unwrap();
        let mut tab = Tab { socket, last: 0, is_loaded: false, complaints: Vec::new() };
        for domain in ["Page", "Runtime", "Log"] {
            tab.ask(&format!("{domain}.enable"), json!({})).await;
        }
        tab
    }
}

/// The object that comes over a connection, which is not closed after it.
async fn answered(stream: &mut TcpStream) -> Value {
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut piece).await.unwrap();
        assert!(length > 0, "Chromium breaks off: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&answer);
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        if let Ok(told) = serde_json::from_str(body) {
            return told;
        }
    }
}

impl Tab {
    pub async fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let message = json!({"id": id, "method": method, "params": parameters}).to_string();
        self.socket.send(Message::text(message)).await.unwrap();
        loop {
            let told = self.hear().await;
            if told["id"] == id {
                assert!(told["error"].is_null(), "{method}: {told}");
                return told["result"].clone();
            }
        }
    }

    async fn hear(&mut self) -> Value {
        loop {
            let message = timeout(PATIENCE, self.socket.next()).await.expect("Chromium says nothing").unwrap().unwrap();
            let Message::Text(text) = message else { continue };
            let told: Value = serde_json::from_str(&text).unwrap();
            self.is_loaded |= told["method"] == "Page.loadEventFired";
            if ["Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"]
                .contains(&told["method"].as_str().unwrap_or_default())
            {
                self.complaints.push(told["params"].to_string());
            }
            return told;
        }
    }

    /// Goes to a page, and waits until all of it is there.
    pub async fn open(&mut self, address: &str) {
        self.is_loaded = false;
        let told = self.ask("Page.navigate", json!({"url": address})).await;
        assert!(told["errorText"].is_null(), "{address}: {told}");
        while !self.is_loaded {
            self.hear().await;
        }
    }

    /// What an expression comes to in the page.
    pub async fn value(&mut self, expression: &str) -> Value {
        let told = self.ask("Runtime.evaluate", json!({"expression": expression, "returnByValue": true})).await;
        assert!(told["exceptionDetails"].is_null(), "{expression}: {told}");
        told["result"]["value"].clone()
    }

    /// Until an expression is true there; how long that took.
    pub async fn until(&mut self, expression: &str) -> Duration {
        let begun = Instant::now();
        while self.value(expression).await != true {
            assert!(begun.elapsed() < PATIENCE, "{expression} never holds");
            sleep(Duration::from_millis(50)).await;
        }
        begun.elapsed()
    }

    pub async fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            _ => (0, key),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let pressed = json!({"type": kind, "key": key, "windowsVirtualKeyCode": code, "text": text});
            self.ask("Input.dispatchKeyEvent", pressed).await;
        }
    }

    pub async fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", size).await;
    }

    pub async fn prefer(&mut self, scheme: &str) {
        let feature = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.ask("Emulation.setEmulatedMedia", feature).await;
    }

    /// A picture of what is seen, as PNG.
    pub async fn picture(&mut self) -> Vec<u8> {
        let told = self.ask("Page.captureScreenshot", json!({"format": "png"})).await;
        let bytes: ByteString = serde_json::from_value(told["data"].clone()).unwrap();
        bytes.0
    }
}
