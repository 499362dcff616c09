package wsladder.gateway

import java.util.concurrent.ConcurrentHashMap

/** The state that all sessions share, and the drain of all sessions. */
final class Gateway(val config: Config, val books: Books, val inference: Inference):
  /** For each running session, the function that starts its drain. */
  val sessions: java.util.Set[() => Unit] = ConcurrentHashMap.newKeySet()
  @volatile private var accepting = true

  /** Whether new sessions are accepted. */
  def isAccepting: Boolean = accepting

  /** Stops accepting sessions and drains the running ones. Returns when all have ended, or after `millis`. */
  def drain(millis: Long): Unit =
    accepting = false
    sessions.forEach(_())
    val deadline = System.nanoTime + millis * 1_000_000
    while !sessions.isEmpty && System.nanoTime < deadline do Thread.sleep(10)
