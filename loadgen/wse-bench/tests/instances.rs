//! Two instances that tell of themselves at two ports, read as one service.

use axum::{Json, Router, routing::get};
use bench_format::service::{LinkStats, LinksStats, PublisherStats, ServiceStats};
use tokio::{net::TcpListener, runtime::Runtime};
use wse_bench::stats::{Stats, Urls};

/// Serves what an instance tells; returns where.
fn instance(runtime: &Runtime, publisher: Option<PublisherStats>, link: LinkStats) -> String {
    let links = LinksStats { cluster: Some(link), redis: None };
    let mut pages = Router::new()
        .route("/stats", get(async || Json(ServiceStats::default())))
        .route("/stats/links", get(move || async move { Json(links) }));
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
fn what_one_published_and_sent_the_other_received() {
    let runtime = runtime();
    let service = instance(&runtime, None, received());
    let publisher = instance(&runtime, publisher(), sent());
    let read = Stats::new(&Urls { service, publisher: Some(publisher) }).unwrap().read().unwrap();
    assert_eq!(read.publisher.unwrap().published, 7);
    assert_eq!(read.links.unwrap().cluster.unwrap(), LinkStats { published: 7, sent: 7, ..received() });
}

#[test]
fn an_instance_that_tells_of_both_is_asked_alone() {
    let runtime = runtime();
    let both = LinkStats { published: 7, sent: 7, ..received() };
    let service = instance(&runtime, publisher(), both.clone());
    // Nobody is there.
    let publisher = Some("http://127.0.0.1:1".to_owned());
    let read = Stats::new(&Urls { service, publisher }).unwrap().read().unwrap();
    assert_eq!((read.publisher.unwrap().published, read.links.unwrap().cluster), (7, Some(both)));
}

#[test]
fn a_publisher_that_tells_nothing_is_an_error_with_the_way_out() {
    let runtime = runtime();
    let service = instance(&runtime, None, received());
    let words = |publisher: String| {
        let urls = Urls { service: service.clone(), publisher: Some(publisher) };
        format!("{:#}", Stats::new(&urls).err().unwrap())
    };
    let silent = words("http://127.0.0.1:1".into());
    assert!(
        silent.starts_with("no publishing instance tells of itself at http://127.0.0.1:1; give its --metrics-port")
    );
    let other = words(instance(&runtime, None, received()));
    assert!(other.ends_with("publishes nothing"), "{other}");
}
