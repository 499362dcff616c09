package wsladder.gateway

import java.util.concurrent.ConcurrentHashMap

/** What sessions have in common. */
final class Gateway(val config: Config, val books: Books, val inference: Inference):
  /** For each session that runs, the call that stops it. */
  val sessions: java.util.Set[() => Unit] = ConcurrentHashMap.newKeySet()
  @volatile private var accepting = true

  /** Whether sessions may come. */
  def isAccepting: Boolean = accepting

  /** Takes no more sessions and stops those that run; returns when they are gone, or after `millis`. */
  def drain(millis: Long): Unit =
    accepting = false
    sessions.forEach(_())
    val deadline = System.nanoTime + millis * 1_000_000
    while !sessions.isEmpty && System.nanoTime < deadline do Thread.sleep(10)
