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
 * A session's audio on its way to the inference, and what the client is told of it. Its session's
 * lock guards it.
 */
final class Flights {
  private record Flight(Call call, Batch batch, long began, long flushLateness) {}

  private final Gateway gateway;
  private final Inbox inbox;
  private final Inference.Lane lane;
  private final Consumer<Runnable> landed;
  private WsSession webSocket;

  /** The request in flight. There is no place for a second one. */
  private Flight flight;

  /**
   * No request is in flight.
   *
   * @param landed runs what it is given under the session's lock
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

  /** A tick that ran so late. */
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

  /** Reports what was dropped, and sends all audio that waits, if any does. None is in flight. */
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

  // This very flight: one that was given up has no answer any more.
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

  /** The session is over: its request is given up. */
  void abandon(Counts counts) {
    if (flight != null) {
      counts.abandon(flight.batch().taken().span().frames());
      flight.call().cancel();
      flight = null;
    }
  }
}
