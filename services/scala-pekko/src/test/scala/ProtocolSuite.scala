package wsladder.gateway

import wsladder.gateway.Protocol.{Covered, Failure, Kind}

/** Tests of `Protocol` with the golden messages. */
class ProtocolSuite extends munit.FunSuite:
  private def parse(body: String, frames: Int, passes: Int) = Protocol.parse(body.getBytes, 200, frames, passes)

  Golden.client.filter(_.text.nonEmpty).filter(_.state == "first").foreach: entry =>
    test(s"a first message: ${entry.name}"):
      assertEquals(Protocol.isStart(entry.text.get.getBytes), entry.means == "start")

  Golden.inference.foreach: entry =>
    test(s"a response of the inference: ${entry.name}"):
      val outcome = Protocol.failureOf(entry.status) match
        case Some(failure) => Left(failure)
        case None          => Protocol.parse(entry.body.getBytes, entry.status, entry.frames, entry.cpu_passes)
      outcome match
        case Right(_)      => assertEquals(entry.means, "partial")
        case Left(failure) =>
          assertEquals(entry.means, "error")
          assertEquals(Some(failure.kind.name), entry.kind)
          assertEquals(Some(failure.kind.stage), entry.stage)
          assertEquals(failure.status, entry.inference_status)
          assertEquals(Some(failure.isRetryable), entry.retryable)

  Golden.partial.foreach: entry =>
    test(s"a partial: ${entry.name}"):
      val of = entry.of
      val Right(recognition) = parse(of.body, of.frames, of.cpu_passes): @unchecked
      val text = Protocol
        .partial(of.oldest_frame_seq, of.frames, recognition, of.cpu_passes, of.model_delay_ms, of.flush_lateness_ms)
        .utf8String
      assertEquals(text, entry.text)

  Golden.error.foreach: entry =>
    test(s"an error: ${entry.name}"):
      val of = entry.of
      val kind = Kind.values.find(_.name == of.kind).get
      val failure = Failure(kind, of.message, of.inference_status)
      val covered = Covered(of.oldest_frame_seq, of.frames, of.oldest_age_ms, of.newest_age_ms)
      val text = Protocol
        .error(failure, covered, of.flush_lateness_ms, of.inference_elapsed_ms, of.gateway_buffer_frames)
        .utf8String
      assertEquals(text, entry.text)
