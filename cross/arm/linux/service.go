package main

import (
	"net"
	"os"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/device"
)

// service notifies the service manager as sd_notify(3) does: a datagram to the socket in
// $NOTIFY_SOCKET. Without the variable it does nothing.
type service struct {
	socket    string
	feedEvery time.Duration

	watched  bool
	answered uint64 // messages with a result at the last check
	moved    time.Time
}

// stuckAfter is how long a connected client may make no progress with its outbox before the
// watchdog is not fed. The client detects dead connections itself within a minute or two; this is
// for unforeseen faults.
const stuckAfter = 15 * time.Minute

func newService() *service {
	s := &service{socket: os.Getenv("NOTIFY_SOCKET"), feedEvery: time.Minute, moved: time.Now()}
	// The manager kills the program after $WATCHDOG_USEC without a notification.
	pid := os.Getenv("WATCHDOG_PID") // the watched process; the variable may be inherited from a parent program
	mine := pid == "" || pid == strconv.Itoa(os.Getpid())
	if usec, err := strconv.ParseUint(os.Getenv("WATCHDOG_USEC"), 10, 40); err == nil && usec > 0 && mine {
		s.watched = true
		s.feedEvery = max(time.Duration(usec)*time.Microsecond/2, time.Millisecond)
	}
	return s
}

// feed feeds the watchdog unless the client is stuck.
func (s *service) feed(client *device.Client) {
	stats := client.Stats()
	answered := stats.Accepted - uint64(stats.Queued)
	if answered != s.answered || stats.Queued == 0 || client.Status().State != device.StateConnected {
		s.answered, s.moved = answered, time.Now()
	}
	if s.watched && time.Since(s.moved) < stuckAfter {
		s.tell("WATCHDOG=1")
	}
}

// tell sends a line to the manager. It ignores errors, since the manager notices a missing line
// itself.
func (s *service) tell(line string) {
	if s.socket == "" {
		return
	}
	name := s.socket
	if name[0] == '@' { // an abstract socket
		name = "\x00" + name[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // a manager that does not read must not block the readings
	_, _ = c.Write([]byte(line))
}
