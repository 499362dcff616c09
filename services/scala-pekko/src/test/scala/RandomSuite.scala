package wsladder.gateway

import java.nio.charset.StandardCharsets.{ISO_8859_1, UTF_8}
import scala.util.Random
import wsladder.gateway.Protocol.Kind

/** Tests of the parsers with random input. The seeds are fixed, so that a failure is reproducible. */
class RandomSuite extends munit.FunSuite:
  private val Rounds = 20_000
  private val Spaces = Vector("", "", " ", "\n", "\t", "\r", "  ")

  // Values that are not valid numbers; below, numbers that are not valid counts.
  private val NoNumbers =
    Vector(
      "null",
      "[]",
      "{}",
      "true",
      "\"\"",
      "",
      "-",
      "+1",
      ".5",
      "1.",
      "01",
      "1e",
      "1d",
      "0x1",
      "NaN",
      "1e999",
      "1 2"
    )
  private val NoCounts = Vector("-1", "1.0", "1e2", "9223372036854775808")

  private def oneOf[T](random: Random, values: Vector[T]): T = values(random.nextInt(values.size))

  /** Joins JSON tokens with random white space around them. */
  private def spaced(random: Random, tokens: Vector[String]): String =
    tokens.map(oneOf(random, Spaces) + _).mkString + oneOf(random, Spaces)

  /** Returns the bytes with one byte replaced, removed, repeated or inserted. */
  private def edited(random: Random, bytes: Vector[Byte]): Vector[Byte] =
    val at = random.nextInt(bytes.size)
    val other = if random.nextBoolean() then random.nextInt(256).toByte else oneOf(random, bytes)
    random.nextInt(4) match
      case 0 => bytes.updated(at, other)
      case 1 => bytes.patch(at, Nil, 1)
      case 2 => bytes.patch(at, List(bytes(at)), 0)
      case _ => bytes.patch(at, List(other), 0)

  private final case class Answer(frames: Int, passes: Int, fields: Vector[(String, String)])

  private def answer(random: Random): Answer =
    val frames = 1 + random.nextInt(250)
    val passes = 1 + random.nextInt(1000)
    val rms = oneOf(random, Vector("0", "-0.0", "1.50", "32768", "1e3", "2.5E-3", random.nextDouble().toString))
    val transcript = oneOf(random, Vector("now", "a \\\"b\\\"", "\\u00e9\\ud83d\\ude00", "é", "\\n", "{}", ","))
    val fields = Vector(
      "rms" -> rms,
      "zero_crossings" -> random.nextLong(1L << 40).toString,
      "checksum" -> random.nextLong(1L << 32).toString,
      "samples" -> (passes.toLong * 320 * frames).toString,
      "transcript" -> s"\"$transcript\"",
      "audio_bytes" -> (640L * frames).toString
    )
    Answer(frames, passes, random.shuffle(fields))

  private def text(random: Random, fields: Vector[(String, String)]): String =
    val members = fields.map((key, value) => Vector(s"\"$key\"", ":", value))
    spaced(random, "{" +: members.reduceLeft((before, next) => (before :+ ",") ++ next) :+ "}")

  private def read(body: Array[Byte], answer: Answer) = Protocol.parse(body, 200, answer.frames, answer.passes)

  test("an answer is read in any order of keys and with any white space, and its rms stays as written"):
    val random = Random(1)
    for _ <- 1 to Rounds do
      val made = answer(random)
      val body = text(random, made.fields)
      read(body.getBytes(UTF_8), made) match
        case Right(found) =>
          val field = made.fields.toMap
          assertEquals(found.rms.text, field("rms"), body)
          assertEquals(found.checksum.toString, field("checksum"), body)
          assertEquals(found.zero_crossings.toString, field("zero_crossings"), body)
        case Left(failure) => fail(s"$failure: $body")

  test("an answer with a key too few, too many or twice, with other counts or values of another type is a parse error"):
    val random = Random(2)
    for _ <- 1 to Rounds do
      val made = answer(random)
      val at = random.nextInt(made.fields.size)
      val (key, value) = made.fields(at)
      val broken = random.nextInt(5) match
        case 0 => made.fields.patch(at, Nil, 1)
        case 1 => made.fields.patch(at, List(s"${key}_" -> value), 0)
        case 2 => made.fields :+ (key -> value)
        case 3 =>
          made.fields.updated(at, key -> oneOf(random, if key == "rms" then NoNumbers else NoNumbers ++ NoCounts))
        case _ => made.fields.map((key, value) => key -> (if key == "samples" then s"${value}0" else value))
      val body = text(random, broken)
      val outcome = read(body.getBytes(UTF_8), made)
      assertEquals(outcome.left.toOption.map(_.kind), Some(Kind.ParseError), body)

  test("an answer with some bytes changed gives what counts right, or a parse error, and never an exception"):
    val random = Random(3)
    for _ <- 1 to Rounds do
      val made = answer(random)
      val edits = 1 + random.nextInt(3)
      val body = (1 to edits).foldLeft(text(random, made.fields).getBytes(UTF_8).toVector)((bytes, _) =>
        edited(random, bytes)
      )
      read(body.toArray, made) match
        case Left(failure) => assertEquals(failure.kind, Kind.ParseError)
        case Right(found)  =>
          assert(found.rms.text.toDouble.isFinite && found.transcript.nonEmpty)
          assert(found.zero_crossings >= 0 && found.checksum >= 0 && found.checksum < (1L << 32))
          assertEquals(found.samples, made.passes * 320L * made.frames)
          assertEquals(found.audio_bytes, 640L * made.frames)

  test("a first message with some bytes changed is a start only where it is still the same object"):
    val random = Random(4)
    val start = """[ \t\r\n]*\{[ \t\r\n]*"type"[ \t\r\n]*:[ \t\r\n]*"start"[ \t\r\n]*\}[ \t\r\n]*""".r
    for _ <- 1 to Rounds do
      val whole = spaced(random, Vector("{", "\"type\"", ":", "\"start\"", "}")).getBytes(UTF_8).toVector
      assert(Protocol.isStart(whole.toArray), whole)
      val bytes = (1 to 1 + random.nextInt(2)).foldLeft(whole)((bytes, _) => edited(random, bytes)).toArray
      val message = String(bytes, ISO_8859_1)
      assertEquals(Protocol.isStart(bytes), start.matches(message), message)
