package wsladder.gateway

import java.util.concurrent.ThreadLocalRandom
import org.apache.pekko.http.wsladder.Frames
import org.apache.pekko.stream.stage.*
import org.apache.pekko.stream.{Attributes, FlowShape, Inlet, Outlet}
import org.apache.pekko.util.ByteString
import scala.collection.mutable
import scala.concurrent.ExecutionContext
import scala.concurrent.duration.*
import wsladder.gateway.Protocol.{milliseconds, Failure, Kind, Recognition}

/**
 * One session as a stage of a stream, with inbound and outbound frames. The stage handles one event at a time, so its
 * state needs no lock.
 *
 * Once the session has started, it pulls frames only during visits. While it pulls, each packet wakes the selector, the
 * connection's actor and this stage. So audio waits in the kernel for up to a third of a second, and one wake-up takes
 * about 17 frames. The last visit before a tick begins early enough for the selector to deliver the audio that has
 * arrived, and ends with the tick.
 */
final class Session(gateway: Gateway) extends GraphStage[FlowShape[Frames.Event, Frames.Event]]:
  private val in = Inlet[Frames.Event]("session.in")
  private val out = Outlet[Frames.Event]("session.out")
  override val shape: FlowShape[Frames.Event, Frames.Event] = FlowShape(in, out)

  override def createLogic(attributes: Attributes): GraphStageLogic = new Logic

  private final class Logic extends TimerGraphStageLogic(shape) with InHandler with OutHandler:
    import Session.*

    private val config = gateway.config
    private val books = gateway.books
    private val intervalNanos = config.flushIntervalMs * 1_000_000L
    private val lane = gateway.inference.lane()
    private val messages = Messages()
    private val backlog = Backlog()
    // The batch in flight; the field can't hold a second one.
    private var flight: Option[Flight] = None
    private var isStarted, isDraining, isDeaf = false
    private var end: Option[End] = None
    // When the next tick is due, and when the visit stops pulling frames. The last visit ends with the tick.
    private var dueAt, visitEndsAt = 0L
    private var isLastVisit = false
    private val outbox = mutable.Queue.empty[Frames.Event]
    private var outboxBytes = 0
    private var progressAt = 0L

    private val landed = getAsyncCallback[(Flight, Either[Failure, Recognition])](land)
    private val stopped = getAsyncCallback[Unit](_ => drain())
    private val member: () => Unit = () => stopped.invoke(())

    setHandlers(in, out, this)

    override def preStart(): Unit =
      gateway.sessions.add(member)
      pull(in)
      // The gateway may have begun its drain before this session was registered.
      if !gateway.isAccepting then drain()

    override def postStop(): Unit =
      finish(End.Eof)
      gateway.sessions.remove(member)
      books.enter: books =>
        books.open -= 1
        books.closed.add(end.fold("error")(_.reason))

    // Inbound frames.

    override def onPush(): Unit =
      val event = grab(in)
      if end.isEmpty && !isDeaf then messages.take(event).foreach(receive)
      if !isStarted || isDraining || end.nonEmpty || System.nanoTime < visitEndsAt then readOn()

    private def readOn(): Unit = if !hasBeenPulled(in) && !isClosed(in) then pull(in)

    override def onUpstreamFinish(): Unit =
      if end.isEmpty then finish(End.Eof)
      if outbox.isEmpty then completeStage()

    override def onUpstreamFailure(reason: Throwable): Unit =
      if end.isEmpty then close(End.Broken)
      if outbox.isEmpty then completeStage()

    override def onDownstreamFinish(cause: Throwable): Unit =
      finish(End.Eof)
      cancelStage(cause)

    private def receive(whole: Messages.Whole): Unit = whole match
      case Messages.Ping(payload)   => push(Frames.pong(payload), payload.size)
      case Messages.Pong            => ()
      case Messages.Broken          => close(End.Broken)
      case Messages.TooBig          => close(End.TooBig)
      case Messages.Close(payload)  => answerClose(payload)
      case Messages.Text(payload)   => text(payload)
      case Messages.Binary(payload) =>
        if !isStarted then refuse(End.NoStart)
        else if payload.size != Protocol.FrameBytes then refuse(End.NoFrame)
        else frame(payload)

    private def text(payload: ByteString): Unit =
      if isStarted then refuse(End.NoAudio)
      else if Protocol.isStart(payload.toArrayUnsafe()) then start()
      else refuse(End.NoStart)

    private def refuse(how: End): Unit =
      books.enter: books =>
        books.received += 1
        books.dropped.add("protocol")
      close(how)

    private def start(): Unit =
      isStarted = true
      books.enter: books =>
        books.received += 1
        books.consumed += 1
      val jitter = config.flushPhaseJitterMs * 1_000_000L
      val offset = if jitter > 0 then ThreadLocalRandom.current.nextLong(jitter) else 0L
      val now = System.nanoTime
      dueAt = now + offset + intervalNanos
      if !isDraining then rest(now)

    private def frame(audio: ByteString): Unit =
      backlog.add(audio, System.nanoTime)
      val dropped = backlog.dropExcess(config.maxBufferedFrames)
      books.enter: books =>
        books.received += 1
        books.bytesReceived += audio.size + HeaderBytes
        if dropped then books.dropped.add("overflow") else books.waiting += 1

    // Timers, visits and ticks.

    override def onTimer(key: Any): Unit = key match
      case Step     => if end.isEmpty && !isDraining then step()
      case Timeout  => flight.foreach(overdue => land((overdue, Left(timedOut))))
      case Drained  => hasDrained()
      case Deadline => close(End.Shutdown)
      case _        => completeStage()

    /** Begins a visit, or ends the last visit before a tick and runs the tick. */
    private def step(): Unit =
      val now = System.nanoTime
      if isStalled(now) then close(End.SlowConsumer)
      else if isLastVisit then
        isLastVisit = false
        tick(now)
        rest(now)
      else
        isLastVisit = dueAt - now <= LeadNanos
        visitEndsAt = if isLastVisit then math.max(dueAt, now + VisitNanos) else now + VisitNanos
        readOn()
        if isLastVisit then schedule(Step, visitEndsAt - now) else rest(now)

    /** Schedules the next visit. The last one begins `LeadNanos` before the tick; the others are evenly spaced. */
    private def rest(now: Long): Unit =
      val left = math.max(0L, dueAt - LeadNanos - now)
      val visits = math.max(1L, (left + RestNanos - 1) / RestNanos)
      schedule(Step, left / visits)

    private def schedule(key: Any, nanos: Long): Unit = scheduleOnce(key, math.max(0L, nanos).nanos)

    private def tick(now: Long): Unit =
      val lateness = now - dueAt
      dueAt += (lateness / intervalNanos + 1) * intervalNanos
      val outcome = if flight.nonEmpty then "skipped" else if backlog.frames > 0 then "flushed" else "empty"
      books.enter(_.tick(outcome, lateness))
      if flight.isEmpty then flush(now, lateness)

    /** Reports dropped frames, and sends the waiting audio as one batch. No request may be in flight. */
    private def flush(now: Long, lateness: Long): Unit =
      backlog.takeLost(now).foreach: lost =>
        val failure = Failure(Kind.Overflow, s"more than ${config.maxBufferedFrames} frames waited")
        send(Protocol.error(failure, lost, milliseconds(lateness), None, backlog.frames))
      backlog.take().filter(_ => end.isEmpty).foreach: batch =>
        val begun = Flight(batch, now, milliseconds(lateness))
        flight = Some(begun)
        books.enter: books =>
          books.requests += 1
          books.inFlight += 1
          books.inFlightMax = 1
          books.waiting -= batch.frames
          books.flying += batch.frames
        scheduleOnce(Timeout, config.inferenceTimeoutMs.millis)
        gateway.inference.ask(lane, batch).foreach(answer => landed.invoke((begun, answer)))(using
          ExecutionContext.parasitic
        )

    private def timedOut = Failure(Kind.Timeout, s"no answer within ${config.inferenceTimeoutMs} ms")

    private def land(outcome: (Flight, Either[Failure, Recognition])): Unit =
      val (landing, answer) = outcome
      // The request may have timed out or its session may have ended; then its frames are already counted.
      if flight.exists(_ eq landing) then
        cancelTimer(Timeout)
        flight = None
        val batch = landing.batch
        books.enter: books =>
          books.inFlight -= 1
          books.flying -= batch.frames
          answer match
            case Right(_) =>
              books.answered += 1
              books.delivered += batch.frames
            case Left(failure) =>
              books.failed.add(failure.kind.name)
              books.dropped.add(failure.kind.name, batch.frames)
        send(message(landing, answer))
        if isDraining && isDeaf then continueDrain()

    private def message(landing: Flight, answer: Either[Failure, Recognition]): ByteString =
      val batch = landing.batch
      answer match
        case Right(found) =>
          Protocol
            .partial(batch.oldest, batch.frames, found, config.cpuPasses, config.modelDelayMs, landing.latenessMs)
        case Left(failure) =>
          val now = System.nanoTime
          val elapsed = Some(milliseconds(now - landing.began))
          Protocol.error(failure, batch.covered(now), landing.latenessMs, elapsed, backlog.frames)

    // Outbound frames.

    private def send(message: ByteString): Unit = push(Frames.text(message), message.size, isMessage = true)

    private def push(frame: Frames.Event, bytes: Int, isMessage: Boolean = false): Unit =
      if end.isEmpty then
        if outboxBytes + bytes > OutboxBytes then close(End.SlowConsumer)
        else
          if isMessage then
            books.enter: books =>
              books.sent += 1
              books.bytesSent += bytes + serverHeaderBytes(bytes)
          put(frame)

    private def put(frame: Frames.Event): Unit =
      if outbox.isEmpty then progressAt = System.nanoTime
      outbox.enqueue(frame)
      outboxBytes += frame.data.size
      if isAvailable(out) then onPull()

    override def onPull(): Unit =
      if outbox.nonEmpty then
        val frame = outbox.dequeue()
        outboxBytes -= frame.data.size
        progressAt = System.nanoTime
        push(out, frame)
      if end.nonEmpty && outbox.isEmpty then
        complete(out)
        if isClosed(in) then completeStage()

    private def isStalled(now: Long): Boolean = outbox.nonEmpty && now - progressAt > StallNanos

    // The end.

    private def answerClose(payload: ByteString): Unit =
      finish(End.Client)
      put(Frames.close(payload))
      linger()

    /** Ends the session with a Close frame, which is sent after the waiting messages. */
    private def close(how: End): Unit =
      if end.isEmpty then
        finish(how)
        put(Frames.close(how.code, how.text))
        linger()

    /** Allows a second for the Close frame to be written; inbound bytes are read and discarded meanwhile. */
    private def linger(): Unit =
      scheduleOnce(Lingered, CloseTime)
      readOn()

    /** Ends the session unless it has already ended: counts its waiting frames as dropped and abandons its request. */
    private def finish(how: End): Unit =
      if end.isEmpty then
        end = Some(how)
        cancelTimer(Timeout)
        val waiting = backlog.clear()
        val flying = flight.map(_.batch.frames)
        flight = None
        books.enter: books =>
          books.waiting -= waiting
          flying.foreach: frames =>
            books.flying -= frames
            books.inFlight -= 1
            books.abandoned += 1
          val lost = waiting + flying.getOrElse(0)
          if lost > 0 then books.dropped.add("closed", lost)

    /** Starts the drain. Audio that the client has sent by now still goes to the inference; later audio is ignored. */
    private def drain(): Unit =
      if end.isEmpty && !isDraining then
        isDraining = true
        if !isStarted then close(End.Shutdown)
        else
          readOn()
          scheduleOnce(Drained, LastReadTime)
          scheduleOnce(Deadline, DrainTime)

    private def hasDrained(): Unit =
      isDeaf = true
      continueDrain()

    private def continueDrain(): Unit =
      if flight.isEmpty && end.isEmpty then
        flush(System.nanoTime, 0)
        if flight.isEmpty then close(End.Shutdown)

object Session:
  /** Shortest duration of a visit: the selector needs a few milliseconds to deliver the bytes that have arrived. */
  private val VisitNanos = 5_000_000L

  /**
   * Time from the start of the last visit to its tick. The scheduler may be 10 ms late; the rest is enough for a visit.
   */
  private val LeadNanos = 15_000_000L

  /** Longest time between two visits. The contract requires a pong within 500 ms. */
  private val RestNanos = 340_000_000L

  /** Time for the audio that is already in the kernel to arrive in the stage when the gateway stops. */
  private val LastReadTime = 20.millis
  private val OutboxBytes = 64 * 1024
  private val StallNanos = 10_000_000_000L
  private val CloseTime = 1.second
  private val DrainTime = 2900.millis
  // Bytes of an audio frame's header and mask (RFC 6455, 5.2).
  private val HeaderBytes = 8

  /** Bytes of the header of a frame to a client, which has no mask (RFC 6455, 5.2). */
  private def serverHeaderBytes(payload: Int): Int =
    if payload < 126 then 2 else if payload < 65_536 then 4 else 10

  private case object Step
  private case object Timeout
  private case object Drained
  private case object Deadline
  private case object Lingered

  /** A batch in flight, the time at which it was sent, and the lateness of its tick. */
  private final class Flight(val batch: Batch, val began: Long, val latenessMs: Double)

/**
 * Why a session ends: its close reason in the books, and the code and the reason of the Close frame that `close` sends.
 */
final case class End(reason: String, code: Int, text: String)

object End:
  val Eof: End = End("eof", 1006, "")
  val Client: End = End("client", 1000, "")
  val Broken: End = End("protocol", 1002, "protocol error")
  val NoStart: End = End("protocol", 1002, Protocol.FirstMustBeStart)
  val NoAudio: End = End("protocol", 1002, Protocol.ExpectedAudio)
  val NoFrame: End = End("protocol", 1003, Protocol.ExpectedFrame)
  val TooBig: End = End("too_big", 1009, Protocol.TooBig)
  val SlowConsumer: End = End("slow_consumer", 1013, "the client does not read")
  val Shutdown: End = End("shutdown", 1001, "the gateway stops")
