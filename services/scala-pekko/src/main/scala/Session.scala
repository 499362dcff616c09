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
 * Once the session has started, it pulls frames only during short periods, its visits: while a stage pulls, each packet
 * wakes the selector, the connection's actor and the stage. Between visits audio waits in the kernel, for up to a third
 * of a second, so one wake-up takes about 17 frames. The last visit before a tick begins early enough for the selector
 * to deliver the audio that has arrived, and ends with the tick.
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
    private val connection = gateway.inference.assignConnection()
    private val messages = Messages()
    private val backlog = Backlog()
    // The request in flight; the field can't hold a second one.
    private var pending: Option[PendingRequest] = None
    private var isStarted, isDraining, isInputIgnored = false
    private var closeReason: Option[CloseReason] = None
    // When the next tick is due, and when the visit stops pulling frames. The last visit ends with the tick.
    private var dueAt, visitEndsAt = 0L
    private var isLastVisit = false
    private val outbox = mutable.Queue.empty[Frames.Event]
    private var outboxBytes = 0
    private var progressAt = 0L

    private val onResponse = getAsyncCallback[(PendingRequest, Either[Failure, Recognition])](complete)
    private val onShutdown = getAsyncCallback[Unit](_ => drain())
    private val startDrain: () => Unit = () => onShutdown.invoke(())

    setHandlers(in, out, this)

    override def preStart(): Unit =
      gateway.sessions.add(startDrain)
      pull(in)
      // The gateway may have begun its drain before this session was registered.
      if !gateway.isAccepting then drain()

    override def postStop(): Unit =
      finish(CloseReason.Eof)
      gateway.sessions.remove(startDrain)
      books.update: books =>
        books.open -= 1
        books.closed.add(closeReason.fold("error")(_.label))

    // Inbound frames.

    override def onPush(): Unit =
      val event = grab(in)
      if closeReason.isEmpty && !isInputIgnored then messages.add(event).foreach(receive)
      if !isStarted || isDraining || closeReason.nonEmpty || System.nanoTime < visitEndsAt then pullNext()

    private def pullNext(): Unit = if !hasBeenPulled(in) && !isClosed(in) then pull(in)

    override def onUpstreamFinish(): Unit =
      if closeReason.isEmpty then finish(CloseReason.Eof)
      if outbox.isEmpty then completeStage()

    override def onUpstreamFailure(reason: Throwable): Unit =
      if closeReason.isEmpty then close(CloseReason.ProtocolError)
      if outbox.isEmpty then completeStage()

    override def onDownstreamFinish(cause: Throwable): Unit =
      finish(CloseReason.Eof)
      cancelStage(cause)

    private def receive(inbound: Messages.Inbound): Unit = inbound match
      case Messages.Ping(payload)   => push(Frames.pong(payload), payload.size)
      case Messages.Pong            => ()
      case Messages.ProtocolError   => close(CloseReason.ProtocolError)
      case Messages.TooBig          => close(CloseReason.TooBig)
      case Messages.Close(payload)  => replyToClose(payload)
      case Messages.Text(payload)   => receiveText(payload)
      case Messages.Binary(payload) =>
        if !isStarted then reject(CloseReason.ExpectedStart)
        else if payload.size != Protocol.FrameBytes then reject(CloseReason.WrongFrameSize)
        else receiveAudio(payload)

    private def receiveText(payload: ByteString): Unit =
      if isStarted then reject(CloseReason.ExpectedAudio)
      else if Protocol.isStart(payload.toArrayUnsafe()) then start()
      else reject(CloseReason.ExpectedStart)

    private def reject(reason: CloseReason): Unit =
      books.update: books =>
        books.received += 1
        books.dropped.add("protocol")
      close(reason)

    private def start(): Unit =
      isStarted = true
      books.update: books =>
        books.received += 1
        books.consumed += 1
      val jitter = config.flushPhaseJitterMs * 1_000_000L
      val offset = if jitter > 0 then ThreadLocalRandom.current.nextLong(jitter) else 0L
      val now = System.nanoTime
      dueAt = now + offset + intervalNanos
      if !isDraining then scheduleVisit(now)

    private def receiveAudio(audio: ByteString): Unit =
      backlog.add(audio, System.nanoTime)
      val dropped = backlog.dropExcess(config.maxBufferedFrames)
      books.update: books =>
        books.received += 1
        books.bytesReceived += audio.size + HeaderBytes
        if dropped then books.dropped.add("overflow") else books.waiting += 1

    // Timers, visits and ticks.

    override def onTimer(key: Any): Unit = key match
      case Step     => if closeReason.isEmpty && !isDraining then step()
      case Timeout  => pending.foreach(request => complete((request, Left(timedOut))))
      case LastRead => onLastRead()
      case Deadline => close(CloseReason.Shutdown)
      case _        => completeStage()

    /** Begins a visit, or ends the last visit before a tick and runs the tick. */
    private def step(): Unit =
      val now = System.nanoTime
      if isStalled(now) then close(CloseReason.SlowConsumer)
      else if isLastVisit then
        isLastVisit = false
        tick(now)
        scheduleVisit(now)
      else
        isLastVisit = dueAt - now <= LeadNanos
        visitEndsAt = if isLastVisit then math.max(dueAt, now + VisitNanos) else now + VisitNanos
        pullNext()
        if isLastVisit then schedule(Step, visitEndsAt - now) else scheduleVisit(now)

    /** Schedules the next visit. The last one begins `LeadNanos` before the tick; the others are evenly spaced. */
    private def scheduleVisit(now: Long): Unit =
      val untilLast = math.max(0L, dueAt - LeadNanos - now)
      val visits = math.max(1L, (untilLast + MaxPauseNanos - 1) / MaxPauseNanos)
      schedule(Step, untilLast / visits)

    private def schedule(key: Any, nanos: Long): Unit = scheduleOnce(key, math.max(0L, nanos).nanos)

    private def tick(now: Long): Unit =
      val lateness = now - dueAt
      dueAt += (lateness / intervalNanos + 1) * intervalNanos
      val outcome = if pending.nonEmpty then "skipped" else if backlog.frames > 0 then "flushed" else "empty"
      books.update(_.tick(outcome, lateness))
      if pending.isEmpty then flush(now, lateness)

    /** Reports dropped frames, and sends the waiting audio as one batch. No request may be in flight. */
    private def flush(now: Long, lateness: Long): Unit =
      backlog.takeDropped(now).foreach: dropped =>
        val failure = Failure(Kind.Overflow, s"more than ${config.maxBufferedFrames} frames waited")
        send(Protocol.error(failure, dropped, milliseconds(lateness), None, backlog.frames))
      backlog.take().filter(_ => closeReason.isEmpty).foreach: batch =>
        val request = PendingRequest(batch, now, milliseconds(lateness))
        pending = Some(request)
        books.update: books =>
          books.requests += 1
          books.requestsInFlight += 1
          books.inFlightMax = 1
          books.waiting -= batch.frames
          books.inFlightFrames += batch.frames
        scheduleOnce(Timeout, config.inferenceTimeoutMs.millis)
        gateway.inference.send(connection, batch).foreach(outcome => onResponse.invoke((request, outcome)))(using
          ExecutionContext.parasitic
        )

    private def timedOut = Failure(Kind.Timeout, s"no answer within ${config.inferenceTimeoutMs} ms")

    private def complete(completed: (PendingRequest, Either[Failure, Recognition])): Unit =
      val (request, outcome) = completed
      // The request may have timed out or its session may have ended; then its frames are already counted.
      if pending.exists(_ eq request) then
        cancelTimer(Timeout)
        pending = None
        val batch = request.batch
        books.update: books =>
          books.requestsInFlight -= 1
          books.inFlightFrames -= batch.frames
          outcome match
            case Right(_) =>
              books.answered += 1
              books.delivered += batch.frames
            case Left(failure) =>
              books.failed.add(failure.kind.name)
              books.dropped.add(failure.kind.name, batch.frames)
        send(message(request, outcome))
        if isDraining && isInputIgnored then continueDrain()

    private def message(request: PendingRequest, outcome: Either[Failure, Recognition]): ByteString =
      val batch = request.batch
      outcome match
        case Right(recognition) =>
          Protocol
            .partial(batch.oldest, batch.frames, recognition, config.cpuPasses, config.modelDelayMs, request.latenessMs)
        case Left(failure) =>
          val now = System.nanoTime
          val elapsed = Some(milliseconds(now - request.sentAt))
          Protocol.error(failure, batch.covered(now), request.latenessMs, elapsed, backlog.frames)

    // Outbound frames.

    private def send(message: ByteString): Unit = push(Frames.text(message), message.size, isMessage = true)

    private def push(frame: Frames.Event, bytes: Int, isMessage: Boolean = false): Unit =
      if closeReason.isEmpty then
        if outboxBytes + bytes > OutboxBytes then close(CloseReason.SlowConsumer)
        else
          if isMessage then
            books.update: books =>
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
      if closeReason.nonEmpty && outbox.isEmpty then
        complete(out)
        if isClosed(in) then completeStage()

    private def isStalled(now: Long): Boolean = outbox.nonEmpty && now - progressAt > StallNanos

    // Close handshake and drain.

    private def replyToClose(payload: ByteString): Unit =
      finish(CloseReason.Client)
      put(Frames.close(payload))
      linger()

    /** Ends the session with a Close frame, which is sent after the waiting messages. */
    private def close(reason: CloseReason): Unit =
      if closeReason.isEmpty then
        finish(reason)
        put(Frames.close(reason.code, reason.text))
        linger()

    /** Allows a second for the Close frame to be written; inbound bytes are read and discarded meanwhile. */
    private def linger(): Unit =
      scheduleOnce(Lingered, CloseTime)
      pullNext()

    /** Ends the session unless it has already ended: counts its waiting frames as dropped and abandons its request. */
    private def finish(reason: CloseReason): Unit =
      if closeReason.isEmpty then
        closeReason = Some(reason)
        cancelTimer(Timeout)
        val waiting = backlog.clear()
        val inFlightFrames = pending.map(_.batch.frames)
        pending = None
        books.update: books =>
          books.waiting -= waiting
          inFlightFrames.foreach: frames =>
            books.inFlightFrames -= frames
            books.requestsInFlight -= 1
            books.abandoned += 1
          val dropped = waiting + inFlightFrames.getOrElse(0)
          if dropped > 0 then books.dropped.add("closed", dropped)

    /** Starts the drain. Audio that the client has sent by now still goes to the inference; later audio is ignored. */
    private def drain(): Unit =
      if closeReason.isEmpty && !isDraining then
        isDraining = true
        if !isStarted then close(CloseReason.Shutdown)
        else
          pullNext()
          scheduleOnce(LastRead, LastReadTime)
          scheduleOnce(Deadline, DrainTime)

    private def onLastRead(): Unit =
      isInputIgnored = true
      continueDrain()

    private def continueDrain(): Unit =
      if pending.isEmpty && closeReason.isEmpty then
        flush(System.nanoTime, 0)
        if pending.isEmpty then close(CloseReason.Shutdown)

object Session:
  /** Shortest duration of a visit: the selector needs a few milliseconds to deliver the bytes that have arrived. */
  private val VisitNanos = 5_000_000L

  /**
   * Time from the start of the last visit to its tick. The scheduler may be 10 ms late; 5 ms are enough for a visit.
   */
  private val LeadNanos = 15_000_000L

  /** Longest time between two visits. The contract requires a pong within 500 ms. */
  private val MaxPauseNanos = 340_000_000L

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
  private case object LastRead
  private case object Deadline
  private case object Lingered

  /** A batch in flight, the time of `System.nanoTime` at which it was sent, and the lateness of its tick. */
  private final class PendingRequest(val batch: Batch, val sentAt: Long, val latenessMs: Double)

/**
 * Why a session ends: the close reason in the books (`label`), and the code and the reason (`text`) of the Close frame
 * that `close` sends.
 */
final case class CloseReason(label: String, code: Int, text: String)

object CloseReason:
  val Eof: CloseReason = CloseReason("eof", 1006, "")
  val Client: CloseReason = CloseReason("client", 1000, "")
  val ProtocolError: CloseReason = CloseReason("protocol", 1002, "protocol error")
  val ExpectedStart: CloseReason = CloseReason("protocol", 1002, Protocol.FirstMustBeStart)
  val ExpectedAudio: CloseReason = CloseReason("protocol", 1002, Protocol.ExpectedAudio)
  val WrongFrameSize: CloseReason = CloseReason("protocol", 1003, Protocol.ExpectedFrame)
  val TooBig: CloseReason = CloseReason("too_big", 1009, Protocol.TooBig)
  val SlowConsumer: CloseReason = CloseReason("slow_consumer", 1013, "the client does not read")
  val Shutdown: CloseReason = CloseReason("shutdown", 1001, "the gateway stops")
