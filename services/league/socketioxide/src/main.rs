//! Acknowledges messages, and sends news to the members of a room. Usage: league-socketioxide PORT

use serde_json::Value;
use socketioxide::SocketIo;
use socketioxide::extract::{AckSender, Data, SocketRef};

async fn on_connect(socket: SocketRef) {
    socket.on("message", async |Data::<Value>(data), ack: AckSender| {
        ack.send(&data).ok();
    });
    socket.on("join", async |socket: SocketRef, Data::<String>(room), ack: AckSender| {
        socket.join(room);
        ack.send("ok").ok();
    });
    socket.on("publish", async |socket: SocketRef, Data::<(String, Value)>((room, news))| {
        socket.within(room).emit("news", &news).await.ok();
    });
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).expect("the port is the argument");
    let (layer, io) = SocketIo::new_layer();
    io.ns("/", on_connect);
    let app = axum::Router::new().layer(layer);
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    axum::serve(listener, app).await
}
