package main

import (
	"net"
	"os"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/device"
)

// service talks to the service manager as sd_notify(3) does: a datagram to the socket in
// $NOTIFY_SOCKET. Without it nothing is told.
type service struct {
	socket    string
	feedEvery time.Duration

	watched  bool
	answered uint64 // messages with a result when it was looked last
	moved    time.Time
}

// stuckAfter is how long nothing may come of the outbox, though the client counts as connected,
// before the watchdog is not fed any more. The client finds dead connections by itself within a
// minute or two; this is for what nobody thought of.
const stuckAfter = 15 * time.Minute

func newService() *service {
	s := &service{socket: os.Getenv("NOTIFY_SOCKET"), feedEvery: time.Minute, moved: time.Now()}
	// The manager kills the program when it has not heard of it for $WATCHDOG_USEC.
	pid := os.Getenv("WATCHDOG_PID") // whom it watches; a program that this one was started by may have left it
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
	if answered != s.answered || stats.Queued == 0 || client.Status().State != device.Connected {
		s.answered, s.moved = answered, time.Now()
	}
	if s.watched && time.Since(s.moved) < stuckAfter {
		s.tell("WATCHDOG=1")
	}
}

// tell sends a line to the manager. If that fails the manager finds out by itself.
func (s *service) tell(line string) {
	if s.socket == "" {
		return
	}
	name := s.socket
	if name[0] == '@' { // a socket without a file
		name = "\x00" + name[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // a manager that does not read must not stop the readings
	_, _ = c.Write([]byte(line))
}
