//! Sends back what it gets. Usage: league-actix-ws PORT

use actix_web::{App, Error, HttpRequest, HttpResponse, HttpServer, rt, web};
use actix_ws::AggregatedMessage;
use futures_util::StreamExt as _;

async fn handle(request: HttpRequest, body: web::Payload) -> Result<HttpResponse, Error> {
    let (response, mut session, stream) = actix_ws::handle(&request, body)?;
    let mut stream = stream.aggregate_continuations();
    rt::spawn(async move {
        while let Some(Ok(message)) = stream.next().await {
            let done = match message {
                AggregatedMessage::Text(text) => session.text(text).await,
                AggregatedMessage::Binary(bytes) => session.binary(bytes).await,
                AggregatedMessage::Ping(bytes) => session.pong(&bytes).await,
                AggregatedMessage::Close(reason) => {
                    let _ = session.close(reason).await;
                    return;
                }
                AggregatedMessage::Pong(_) => Ok(()),
            };
            if done.is_err() {
                return;
            }
        }
    });
    Ok(response)
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).expect("the port is the argument");
    HttpServer::new(|| App::new().route("/", web::get().to(handle)))
        .bind(format!("127.0.0.1:{port}"))?
        .run()
        .await
}
