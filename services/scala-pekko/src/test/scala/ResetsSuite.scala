package wsladder.gateway

import org.apache.pekko.util.ByteString

class ResetsSuite extends munit.FunSuite:
  private def frame(kind: Int, flags: Int, stream: Int, payload: ByteString) =
    ByteString(0, 0, payload.size, kind, flags, 0, 0, 0, stream) ++ payload

  private val settings = frame(4, 0, 0, ByteString(0, 3, 0, 0, 0, 100))
  private def headers(stream: Int) = frame(1, 4, stream, ByteString(0x88))
  private def data(stream: Int) = frame(0, 1, stream, ByteString("{}"))
  private def reset(stream: Int) = frame(3, 0, stream, ByteString(0, 0, 0, 2))

  /** Returns the output of `Resets` for these bytes, which arrive in parts of `part` bytes. */
  private def rewritten(bytes: ByteString, part: Int) =
    val resets = Resets()
    bytes.grouped(part).map(resets.take).foldLeft(ByteString.empty)(_ ++ _)

  for part <- List(1, 7, 1000) do
    test(s"answers pass as they are, in parts of $part bytes"):
      val bytes = settings ++ headers(1) ++ data(1) ++ headers(3) ++ reset(3)
      assertEquals(rewritten(bytes, part), bytes)

    test(s"a reset without an answer gets one in front, in parts of $part bytes"):
      val found = rewritten(settings ++ reset(1) ++ headers(3) ++ data(3), part)
      assert(found.startsWith(settings ++ ByteString(0, 0)), found)
      assert(found.endsWith(reset(1) ++ headers(3) ++ data(3)), found)
      assert(found.containsSlice(ByteString(1, 5, 0, 0, 0, 1, 0x8e)), found)
