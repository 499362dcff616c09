//! Tests with a WebSocket client library that is independent of this project.

mod client;

use client::{config, drain, start};
use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest, protocol::frame::coding::CloseCode},
};

#[tokio::test]
async fn a_tungstenite_client_connects_exchanges_messages_and_is_closed() {
    let server = start(config());
    let stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let mut request = format!("ws://{}/wse?protocol_version=1", server.address()).into_client_request().unwrap();
    let bearer = format!("Bearer {}", client::token(&client::claims(), client::SECRET));
    request.headers_mut().insert("authorization", bearer.parse().unwrap());
    let (mut socket, _) = client_async(request, stream).await.unwrap();
    let greeting: serde_json::Value =
        serde_json::from_str(socket.next().await.unwrap().unwrap().to_text().unwrap()).unwrap();
    assert_eq!(greeting["t"], "server_ready");
    let id = greeting["p"]["details"]["connection_id"].as_str().unwrap();

    let big = "x".repeat(500_000);
    for message in [Message::text(r#"{"t":"small"}"#), Message::text(big.clone()), Message::binary(vec![7; 100])] {
        socket.send(message).await.unwrap();
    }
    let drained = drain(&server, 3);
    assert_eq!(drained.iter().map(|drained| drained.data.len()).collect::<Vec<_>>(), [13, 500_000, 100]);

    assert!(server.send_text(id, &big));
    assert_eq!(socket.next().await.unwrap().unwrap().into_text().unwrap().len(), 500_000);
    socket.send(Message::Ping(b"there?".to_vec().into())).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::Pong(b"there?".to_vec().into()));

    assert!(server.disconnect(id));
    let Some(Ok(Message::Close(Some(close_frame)))) = socket.next().await else { panic!("no Close frame") };
    assert_eq!(close_frame.code, CloseCode::Library(4000));
}
