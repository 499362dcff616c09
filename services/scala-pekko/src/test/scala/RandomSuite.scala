package wsladder.gateway

import java.nio.charset.StandardCharsets.{ISO_8859_1, UTF_8}
import scala.util.Random
import wsladder.gateway.Protocol.Kind

/** Tests of the parsers with random input. The seeds are fixed, so that a failure is reproducible. */
class RandomSuite extends munit.FunSuite:
  private val Rounds = 20_000
  private val Spaces = Vector("", "", " ", "\n", "\t", "\r", "  ")

  // Values that are not valid numbers; below, numbers that are not valid counts.
  private val InvalidNumbers =
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
  private val InvalidCounts = Vector("-1", "1.0", "1e2", "9223372036854775808")

  private def oneOf[T](random: Random, values: Vector[T]): T = values(random.nextInt(values.size))

  /** Joins JSON tokens with random white space around them. */
  private def withWhiteSpace(random: Random, tokens: Vector[String]): String =
    tokens.map(oneOf(random, Spaces) + _).mkString + oneOf(random, Spaces)

  /** Returns the bytes with one byte replaced, removed, repeated or inserted. */
  private def editOneByte(random: Random, bytes: Vector[Byte]): Vector[Byte] =
    val at = random.nextInt(bytes.size)
    val other = if random.nextBoolean() then random.nextInt(256).toByte else oneOf(random, bytes)
    random.nextInt(4) match
      case 0 => bytes.updated(at, other)
      case 1 => bytes.patch(at, Nil, 1)
      case 2 => bytes.patch(at, List(bytes(at)), 0)
      case _ => bytes.patch(at, List(other), 0)

  private final case class Response(frames: Int, passes: Int, fields: Vector[(String, String)])

  private def randomResponse(random: Random): Response =
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
    Response(frames, passes, random.shuffle(fields))

  private def text(random: Random, fields: Vector[(String, String)]): String =
    val members = fields.map((key, value) => Vector(s"\"$key\"", ":", value))
    withWhiteSpace(random, "{" +: members.reduceLeft((before, next) => (before :+ ",") ++ next) :+ "}")

  private def parse(body: Array[Byte], response: Response) = Protocol.parse(body, 200, response.frames, response.passes)

  test("a response is parsed with any order of keys and any white space, and rms keeps its digits"):
    val random = Random(1)
    for _ <- 1 to Rounds do
      val response = randomResponse(random)
      val body = text(random, response.fields)
      parse(body.getBytes(UTF_8), response) match
        case Right(recognition) =>
          val field = response.fields.toMap
          assertEquals(recognition.rms.text, field("rms"), body)
          assertEquals(recognition.checksum.toString, field("checksum"), body)
          assertEquals(recognition.zero_crossings.toString, field("zero_crossings"), body)
        case Left(failure) => fail(s"$failure: $body")

  test("a missing, unknown or duplicate key, a wrong count or a value of the wrong type is a parse error"):
    val random = Random(2)
    for _ <- 1 to Rounds do
      val response = randomResponse(random)
      val at = random.nextInt(response.fields.size)
      val (key, value) = response.fields(at)
      val broken = random.nextInt(5) match
        case 0 => response.fields.patch(at, Nil, 1)
        case 1 => response.fields.patch(at, List(s"${key}_" -> value), 0)
        case 2 => response.fields :+ (key -> value)
        case 3 =>
          response.fields.updated(
            at,
            key -> oneOf(random, if key == "rms" then InvalidNumbers else InvalidNumbers ++ InvalidCounts)
          )
        case _ => response.fields.map((key, value) => key -> (if key == "samples" then s"${value}0" else value))
      val body = text(random, broken)
      val outcome = parse(body.getBytes(UTF_8), response)
      assertEquals(outcome.left.toOption.map(_.kind), Some(Kind.ParseError), body)

  test("a response with some bytes changed gives valid values or a parse error, and never an exception"):
    val random = Random(3)
    for _ <- 1 to Rounds do
      val response = randomResponse(random)
      val edits = 1 + random.nextInt(3)
      val body = (1 to edits).foldLeft(text(random, response.fields).getBytes(UTF_8).toVector)((bytes, _) =>
        editOneByte(random, bytes)
      )
      parse(body.toArray, response) match
        case Left(failure)      => assertEquals(failure.kind, Kind.ParseError)
        case Right(recognition) =>
          assert(recognition.rms.text.toDouble.isFinite && recognition.transcript.nonEmpty)
          assert(recognition.zero_crossings >= 0 && recognition.checksum >= 0 && recognition.checksum < (1L << 32))
          assertEquals(recognition.samples, response.passes * 320L * response.frames)
          assertEquals(recognition.audio_bytes, 640L * response.frames)

  test("a first message with some bytes changed is a start message only if it is still the same object"):
    val random = Random(4)
    val start = """[ \t\r\n]*\{[ \t\r\n]*"type"[ \t\r\n]*:[ \t\r\n]*"start"[ \t\r\n]*\}[ \t\r\n]*""".r
    for _ <- 1 to Rounds do
      val original = withWhiteSpace(random, Vector("{", "\"type\"", ":", "\"start\"", "}")).getBytes(UTF_8).toVector
      assert(Protocol.isStart(original.toArray), original)
      val bytes = (1 to 1 + random.nextInt(2)).foldLeft(original)((bytes, _) => editOneByte(random, bytes)).toArray
      val message = String(bytes, ISO_8859_1)
      assertEquals(Protocol.isStart(bytes), start.matches(message), message)
