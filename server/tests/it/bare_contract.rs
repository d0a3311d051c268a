//! A client built from the contract as first published, and nothing newer, is served.

use crate::common::{SQUARES, TestServer, bytes, cells};
use tokio_stream::StreamExt;
use vedette_bare_contract::camera_ai::{
    DetectRequest, object_detection_client::ObjectDetectionClient,
};

#[tokio::test(flavor = "multi_thread")]
async fn the_first_clients_keep_working() {
    let server = TestServer::start(cells("cells_v8.onnx")).await;
    let mut client =
        ObjectDetectionClient::connect(format!("http://{}", server.addr)).await.expect("connects");
    let picture = bytes("base_640x360.jpg");
    let frames = [(5, picture.clone()), (5, b"not a picture".to_vec()), (u64::MAX, picture)];
    let (send, queue) = tokio::sync::mpsc::channel(1);
    let outbound = tokio_stream::wrappers::ReceiverStream::new(queue);
    let mut answers = client.detect_stream(outbound).await.expect("accepted").into_inner();
    let mut received = Vec::new();
    for (frame_id, image_data) in frames {
        send.send(DetectRequest { frame_id, image_data }).await.expect("open");
        received.push(answers.next().await.expect("an answer").expect("no status"));
    }
    drop(send);
    assert!(answers.next().await.is_none(), "the stream ends in order");

    let ids: Vec<_> = received.iter().map(|answer| answer.frame_id).collect();
    assert_eq!(ids, [5, 5, u64::MAX]);
    assert_eq!(received[1].objects, [], "a bad frame has no objects and ends nothing");
    for answer in [&received[0], &received[2]] {
        assert_eq!(answer.objects.len(), 3);
        for (label, [x, y, width, height]) in SQUARES {
            let object = answer.objects.iter().find(|o| o.label == label).expect(label);
            assert!((0.9..=1.0).contains(&object.confidence));
            let b = object.bbox.as_ref().expect("a box");
            let off = [b.x - x, b.y - y, b.width - width, b.height - height];
            assert!(off.iter().all(|d| d.abs() <= 2), "{label}: {b:?}");
        }
    }
    server.stop().await;
}
