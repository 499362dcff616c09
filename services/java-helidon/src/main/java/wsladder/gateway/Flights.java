package wsladder.gateway;

import io.helidon.websocket.WsSession;
import java.util.function.Consumer;
import okhttp3.Call;
import wsladder.gateway.Books.Counts;
import wsladder.gateway.Inbox.Batch;
import wsladder.gateway.Inbox.Taken;
import wsladder.gateway.Protocol.Answer;
import wsladder.gateway.Protocol.Failure;
import wsladder.gateway.Protocol.Kind;
import wsladder.gateway.Protocol.Wait;

/**
 * The requests of one session: sends its audio to the inference, and the partials and errors to its
 * client. The session's lock guards all state.
 */
final class Flights {
  private record Flight(Call call, Batch batch, long began, long flushLateness) {}

  private final Gateway gateway;
  private final Inbox inbox;
  private final Inference.Lane lane;
  private final Consumer<Runnable> landed;
  private WsSession webSocket;

  /** The request in flight; {@code null} if there is none. The field can't hold a second one. */
  private Flight flight;

  /**
   * Creates the requests of a session, without one in flight.
   *
   * @param landed runs its argument under the session's lock
   */
  Flights(Gateway gateway, Inbox inbox, Consumer<Runnable> landed) {
    this.gateway = gateway;
    this.inbox = inbox;
    this.lane = gateway.inference().lane();
    this.landed = landed;
  }

  void opened(WsSession opened) {
    webSocket = opened;
  }

  boolean isIdle() {
    return flight == null;
  }

  /**
   * Counts a tick that ran {@code lateness} nanoseconds after it was due. Sends the waiting audio
   * unless a request is in flight.
   */
  void tick(long lateness) {
    boolean idle = isIdle();
    boolean empty = inbox.frames() == 0;
    gateway
        .books()
        .enter(
            counts -> {
              counts.tick(lateness);
              if (!idle) {
                counts.ticksSkipped++;
              } else if (empty) {
                counts.ticksEmpty++;
              } else {
                counts.ticksFlushed++;
              }
            });
    if (idle) {
      send(lateness);
    }
  }

  /**
   * Reports dropped frames, and sends all waiting audio if there is any. No request may be in
   * flight.
   */
  void send(long lateness) {
    inbox.takeOverflow().ifPresent(dropped -> reportOverflow(dropped, lateness));
    if (inbox.frames() == 0) {
      return;
    }
    Batch batch = inbox.take();
    Flight departing = new Flight(lane.prepare(batch), batch, System.nanoTime(), lateness);
    int inFlight = 1 + (flight == null ? 0 : 1);
    flight = departing;
    gateway.books().enter(counts -> counts.depart(batch.taken().span().frames(), inFlight));
    Thread.startVirtualThread(() -> fly(departing));
  }

  private void fly(Flight departed) {
    Answer answer = lane.ask(departed.call(), departed.batch());
    landed.accept(() -> land(departed, answer));
  }

  // Compares references: the response of an abandoned request is ignored.
  @SuppressWarnings("ReferenceEquality")
  private void land(Flight landing, Answer answer) {
    if (flight != landing) {
      return;
    }
    flight = null;
    Taken taken = landing.batch().taken();
    int frames = taken.span().frames();
    switch (answer) {
      case Recognition recognition -> {
        gateway.books().enter(counts -> counts.deliver(frames));
        inbox.recycle(landing.batch().audio());
        webSocket.send(
            Protocol.partial(taken.span(), recognition, gateway.echo(), landing.flushLateness()),
            true);
      }
      case Failure failure -> {
        gateway.books().enter(counts -> counts.fail(failure.kind(), frames));
        long elapsed = System.nanoTime() - landing.began();
        report(taken, failure, landing.flushLateness(), elapsed);
      }
    }
  }

  private void reportOverflow(Taken dropped, long lateness) {
    String message =
        "%d frames waited: the oldest %d were dropped"
            .formatted(gateway.config().maxBufferedFrames(), dropped.span().frames());
    gateway.books().enter(counts -> counts.sent++);
    report(dropped, new Failure(Kind.OVERFLOW, null, message), lateness, null);
  }

  private void report(Taken taken, Failure failure, long lateness, Long elapsed) {
    long now = System.nanoTime();
    Wait wait =
        new Wait(
            now - taken.oldestRead(), now - taken.newestRead(), lateness, elapsed, inbox.frames());
    webSocket.send(Protocol.error(taken.span(), failure, wait), true);
  }

  /** Cancels and counts the request in flight, if there is one. Called when the session ends. */
  void abandon(Counts counts) {
    if (flight != null) {
      counts.abandon(flight.batch().taken().span().frames());
      flight.call().cancel();
      flight = null;
    }
  }
}
