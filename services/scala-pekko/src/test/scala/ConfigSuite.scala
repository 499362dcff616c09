package wsladder.gateway

class ConfigSuite extends munit.FunSuite:
  private def parse(flags: String*)(variables: (String, String)*) = Config.parse(flags.toList, variables.toMap)

  test("without flags and variables the settings have the contract's defaults"):
    val Right(config) = parse()(): @unchecked
    assertEquals((config.host, config.port, config.inference), ("127.0.0.1", 3000, Address("127.0.0.1", 9000)))
    assertEquals((config.flushIntervalMs, config.inferenceTimeoutMs, config.maxBufferedFrames), (1000, 2000, 200))

  test("a flag overrides a variable"):
    assertEquals(parse("--port", "1")("PORT" -> "2").map(_.port), Right(1))
    assertEquals(parse("--port=1")("PORT" -> "2").map(_.port), Right(1))
    assertEquals(parse()("PORT" -> "2").map(_.port), Right(2))

  test("the message for an invalid value names the setting, the value and the valid range"):
    assertEquals(parse()("PORT" -> "x"), Left("PORT: \"x\" is not a whole number from 0 to 65535"))
    assertEquals(parse()("FLUSH_INTERVAL_MS" -> "0").left.map(_.take(22)), Left("FLUSH_INTERVAL_MS: \"0\""))
    assertEquals(parse("--ports", "1")(), Left("unknown flag --ports; --help lists them"))
    assertEquals(parse("--port")(), Left("--port needs a value"))

  List("https://a:1", "http://a", "http://a:1/x", "http://a:1?x", "a:1", "").foreach: text =>
    test(s"INFERENCE_URL \"$text\" is rejected"):
      assertEquals(parse()("INFERENCE_URL" -> text), Left(s"INFERENCE_URL: \"$text\" is not http://host:port"))
