package wsladder.gateway

import org.apache.pekko.util.ByteString

class ResetsSuite extends munit.FunSuite:
  private def frame(kind: Int, flags: Int, stream: Int, payload: ByteString) =
    ByteString(0, 0, payload.size, kind, flags, 0, 0, 0, stream) ++ payload

  private val settings = frame(4, 0, 0, ByteString(0, 3, 0, 0, 0, 100))
  private def headers(stream: Int) = frame(1, 4, stream, ByteString(0x88))
  private def data(stream: Int) = frame(0, 1, stream, ByteString("{}"))
  private def reset(stream: Int) = frame(3, 0, stream, ByteString(0, 0, 0, 2))

  /** Returns the output of `Resets` for these bytes, which arrive in parts of `partBytes` bytes. */
  private def rewritten(bytes: ByteString, partBytes: Int) =
    val resets = Resets()
    bytes.grouped(partBytes).map(resets.rewrite).foldLeft(ByteString.empty)(_ ++ _)

  for partBytes <- List(1, 7, 1000) do
    test(s"responses pass unchanged, in parts of $partBytes bytes"):
      val bytes = settings ++ headers(1) ++ data(1) ++ headers(3) ++ reset(3)
      assertEquals(rewritten(bytes, partBytes), bytes)

    test(s"a response is inserted before a reset without one, in parts of $partBytes bytes"):
      val output = rewritten(settings ++ reset(1) ++ headers(3) ++ data(3), partBytes)
      assert(output.startsWith(settings ++ ByteString(0, 0)), output)
      assert(output.endsWith(reset(1) ++ headers(3) ++ data(3)), output)
      assert(output.containsSlice(ByteString(1, 5, 0, 0, 0, 1, 0x8e)), output)
