//! Two instances with a metrics port each, read as one service.

use std::sync::{Arc, Mutex};

use axum::{Json, Router, routing::get};
use bench_format::service::{LinkStats, LinksStats, PublisherStats, ServiceStats};
use driver::service_client::{Error, ServiceClient};
use tokio::{net::TcpListener, runtime::Runtime};

/// Serves the pages of an instance; returns its URL.
fn instance(runtime: &Runtime, publisher: Option<PublisherStats>, link: LinkStats) -> String {
    instance_with(runtime, publisher, Arc::new(Mutex::new(Some(link))))
}

/// The same, with a link that may appear later.
fn instance_with(runtime: &Runtime, publisher: Option<PublisherStats>, link: Arc<Mutex<Option<LinkStats>>>) -> String {
    let links = move || LinksStats { cluster: link.lock().unwrap().clone(), redis: None };
    let mut pages = Router::new()
        .route("/stats", get(async || Json(ServiceStats::default())))
        .route("/stats/links", get(move || async move { Json(links()) }));
    if let Some(publisher) = publisher {
        pages = pages.route("/stats/publisher", get(move || async move { Json(publisher) }));
    }
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    runtime.spawn(async move { axum::serve(listener, pages).await.unwrap() });
    url
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Reads publisher and links of a service of two instances.
fn read(
    runtime: &Runtime,
    service: &str,
    publisher: &str,
) -> Result<(Option<PublisherStats>, Option<LinksStats>), Error> {
    runtime.block_on(async {
        let mut client = ServiceClient::of_url(service).with_publisher(publisher);
        client.check().await?;
        Ok((client.publisher().await?, client.links().await?))
    })
}

fn sent() -> LinkStats {
    LinkStats { published: 7, sent: 7, ..LinkStats::default() }
}

fn received() -> LinkStats {
    LinkStats { received: 7, delivered: 7, ..LinkStats::default() }
}

fn publisher() -> Option<PublisherStats> {
    Some(PublisherStats { published: 7, ..PublisherStats::default() })
}

#[test]
fn messages_sent_by_one_instance_are_received_by_the_other() {
    let runtime = runtime();
    let service = instance(&runtime, None, received());
    let publisher = instance(&runtime, publisher(), sent());
    let (stats, links) = read(&runtime, &service, &publisher).unwrap();
    assert_eq!(stats.unwrap().published, 7);
    assert_eq!(links.unwrap().cluster.unwrap(), LinkStats { published: 7, sent: 7, ..received() });
}

#[test]
fn links_that_appear_after_the_first_check_are_read_at_both_instances() {
    let runtime = runtime();
    let [service_link, publisher_link] = [(); 2].map(|()| Arc::new(Mutex::new(None)));
    let service = instance_with(&runtime, None, Arc::clone(&service_link));
    let publisher = instance_with(&runtime, publisher(), Arc::clone(&publisher_link));
    let mut client = ServiceClient::of_url(&service).with_publisher(&publisher);
    let links = runtime.block_on(async {
        client.check().await.unwrap();
        assert!(client.links().await.unwrap().is_none());
        (*service_link.lock().unwrap(), *publisher_link.lock().unwrap()) = (Some(received()), Some(sent()));
        client.find_pages().await;
        client.links().await.unwrap().unwrap()
    });
    assert_eq!(links.cluster.unwrap(), LinkStats { published: 7, sent: 7, ..received() });
}

#[test]
fn an_instance_that_reports_both_sides_is_the_only_one_read() {
    let runtime = runtime();
    let both = LinkStats { published: 7, sent: 7, ..received() };
    let service = instance(&runtime, publisher(), both.clone());
    // Nothing listens at the second URL.
    let (stats, links) = read(&runtime, &service, "http://127.0.0.1:1").unwrap();
    assert_eq!((stats.unwrap().published, links.unwrap().cluster), (7, Some(both)));
}

#[test]
fn a_publisher_without_reports_is_an_error_that_names_it() {
    let runtime = runtime();
    let service = instance(&runtime, None, received());
    let nowhere = read(&runtime, &service, "http://127.0.0.1:1/").unwrap_err();
    assert_eq!(nowhere.to_string(), "no publishing instance responds at http://127.0.0.1:1");
    let other = instance(&runtime, None, received());
    let silent = read(&runtime, &service, &other).unwrap_err();
    assert!(matches!(silent, Error::PublishesNothing { url } if url == other));
}
