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
 * One session as a stage of a stream: frames come in, frames go out, and one thing happens at a time.
 *
 * Once it has started, it asks for frames only during visits. Each packet that is asked for wakes the selector, the
 * connection's actor and this stage; so audio waits in the kernel for up to a third of a second, and one wake-up takes
 * some 17 frames. The last visit before a tick begins early enough for the selector to deliver what has arrived, and
 * lasts until the tick.
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
    // The one batch in flight: there is no place for another.
    private var flight: Option[Flight] = None
    private var isStarted, isDraining, isDeaf = false
    private var end: Option[End] = None
    // When the next tick is due, and until when the visit asks for frames. The last visit ends with the tick.
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
      // It may have come while the gateway began to stop.
      if !gateway.isAccepting then drain()

    override def postStop(): Unit =
      finish(End.Eof)
      gateway.sessions.remove(member)
      books.enter: books =>
        books.open -= 1
        books.closed.add(end.fold("error")(_.reason))

    // What comes in.

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

    // When things happen.

    override def onTimer(key: Any): Unit = key match
      case Step     => if end.isEmpty && !isDraining then step()
      case Timeout  => flight.foreach(overdue => land((overdue, Left(timedOut))))
      case Drained  => hasDrained()
      case Deadline => close(End.Shutdown)
      case _        => completeStage()

    /** Begins a visit, or ends the last one with its tick. */
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

    /** Waits for the next visit. The last one begins `LeadNanos` before the tick; the others are evenly spread. */
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

    /** Reports what was dropped, and sends what waits. There must be nothing in flight. */
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
      // One that took too long was reported, and one of a session that has ended was given up.
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

    // What goes out.

    private def send(message: ByteString): Unit = push(Frames.text(message), message.size, isMessage = true)

    private def push(frame: Frames.Event, bytes: Int, isMessage: Boolean = false): Unit =
      if end.isEmpty then
        if outboxBytes + bytes > OutboxBytes then close(End.SlowConsumer)
        else
          if isMessage then
            books.enter: books =>
              books.sent += 1
              books.bytesSent += bytes + HeaderBytes
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

    /** Ends the session with a close frame behind what waits for the client. */
    private def close(how: End): Unit =
      if end.isEmpty then
        finish(how)
        put(Frames.close(how.code, how.text))
        linger()

    /** The close frame gets a second to leave; what the client still sends is read and thrown away meanwhile. */
    private def linger(): Unit =
      scheduleOnce(Lingered, CloseTime)
      readOn()

    /** The session is over, unless it was: its books are closed, and what it still waits for is given up. */
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

    /** The gateway stops: what the client has sent by now still counts, and nothing after it. */
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
  /** How long a visit asks for frames, at least: the selector needs a few milliseconds to deliver what has arrived. */
  private val VisitNanos = 5_000_000L

  /** How long before a tick its visit begins. The scheduler's clock may be 10 ms late, which still leaves a visit. */
  private val LeadNanos = 15_000_000L

  /** The longest time between two visits: a ping is to be answered within 500 ms. */
  private val RestNanos = 340_000_000L

  /** How long audio that the client has sent by now may take to arrive when the gateway stops. */
  private val LastReadTime = 20.millis
  private val OutboxBytes = 64 * 1024
  private val StallNanos = 10_000_000_000L
  private val CloseTime = 1.second
  private val DrainTime = 2900.millis
  // A frame of audio, and most messages to a client, have as much: header and mask, or header and long length.
  private val HeaderBytes = 8

  private case object Step
  private case object Timeout
  private case object Drained
  private case object Deadline
  private case object Lingered

  /** A batch that was sent and when, with how late its tick was. */
  private final class Flight(val batch: Batch, val began: Long, val latenessMs: Double)

/** Why a session ends, and the close frame of that end. */
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
