package wsladder.gateway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

final class ScheduleTest {
  private static final long MS = 1_000_000;
  private static final long INTERVAL = 1000 * MS;

  @Test
  void socketIsReadInEqualPausesAndAtTheTick() {
    Schedule schedule = new Schedule(INTERVAL, INTERVAL);
    long at = 0;
    for (int visit = 0; visit < 3; visit++) {
      long next = schedule.nextRead(at);
      assertTrue(next - at <= Schedule.MAX_PAUSE_NANOS, "visit " + visit);
      at = next;
    }
    assertEquals(INTERVAL, at);
  }

  @Test
  void tickRunsOnceAndReturnsItsLateness() {
    Schedule schedule = new Schedule(0, INTERVAL);
    assertFalse(schedule.isDue(-1));
    assertTrue(schedule.isDue(3 * MS));
    assertEquals(3 * MS, schedule.tick(3 * MS));
    assertFalse(schedule.isDue(4 * MS));
    assertEquals(0, schedule.tick(INTERVAL));
  }

  @Test
  void missedTicksAreSkippedAndLatenessStartsOver() {
    Schedule schedule = new Schedule(0, INTERVAL);
    assertEquals(3400 * MS, schedule.tick(3400 * MS));
    assertFalse(schedule.isDue(3999 * MS));
    assertEquals(2 * MS, schedule.tick(4002 * MS));
  }
}
