package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

func TestSendOverEachTransportOfAHub(t *testing.T) {
	for _, p := range target.Transports {
		if p.Port == "" || isMQTTv5(p.Name) { // their devices have certificates
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			s := newShell(t, nil)
			require.Equal(t, exitOK, s.run("send", "-body", `{"celsius":21.5}`, "-transport", p.Name, "-count", "3",
				"-property", "site=roof", "-content-type", "application/json", "-correlation-id", "batch-7", "-user-id", "ann"),
				s.log.String())
			messages := s.hub.Messages()
			require.Len(t, messages, 3)
			require.Equal(t, `{"celsius":21.5}`, string(messages[0].Body))
			require.Equal(t, "application/json", messages[0].ContentType)
			require.Equal(t, "batch-7", messages[0].CorrelationID)
			require.Equal(t, "ann", messages[0].UserID)
			require.Contains(t, messages[0].Properties, hubdata.Property{Name: "site", Value: "roof"})
			require.Contains(t, s.log.String(), "3 acknowledged")
			require.Empty(t, s.out.String())
		})
	}
}

func TestSendAndListenAtABroker(t *testing.T) {
	for _, p := range target.Transports {
		if !strings.Contains(p.Schemes, "mqtts") {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			s := newShell(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{}})
			delete(s.env, target.EnvConnect)
			s.env[target.EnvBroker] = s.hub.BrokerURL("pump-1", "mqtts", "localhost:8883")
			require.Equal(t, exitOK, s.run("send", "-body", "up", "-transport", p.Name), s.log.String())
			require.Equal(t, []string{"up"}, s.bodies())
			require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{Body: []byte("down")}))
			require.Equal(t, exitOK, s.run("listen", "-count", "1", "-transport", p.Name), s.log.String())
			require.Equal(t, "down\n", s.out.String())
		})
	}
}

// Empty lines are left out, and a line that is too long is skipped and reported.
func TestLinesAreMessages(t *testing.T) {
	s := newShell(t, nil)
	long := strings.Repeat("x", transport.MaxMessageSize+1)
	s.in = strings.NewReader("one\ntwo\r\n\n" + long + "\nthree")
	require.Equal(t, exitFailed, s.run("send", "-lines"))
	require.Equal(t, []string{"one", "two", "three"}, s.bodies())
	require.Contains(t, s.log.String(), "line 4 is not sent (1 so far): it has more than 262144 bytes; split it")

	s.in = strings.NewReader("a\nb\nc\n")
	require.Equal(t, exitOK, s.run("send", "-lines", "-count", "2"))
	require.Equal(t, []string{"one", "two", "three", "a", "b"}, s.bodies())
}

// A stream may never end, so what is not sent is printed before its end, and without another line.
// The end tells how many there were, with the status of the first.
func TestWhatIsNotSentIsPrintedAtOnce(t *testing.T) {
	long := strings.Repeat("x", transport.MaxMessageSize-1)
	for name, c := range map[string]struct {
		args   []string
		line   string
		status int
	}{
		"refused":                        {[]string{"-topic", "else/where"}, "a", exitFailed},
		"too long with the properties":   {[]string{"-property", "site=roof"}, long, exitFailed},
		"refused, of an outbox in files": {[]string{"-topic", "else/where", "-outbox", t.TempDir()}, "a", exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t, nil)
			s.t = t
			in, feed := io.Pipe()
			s.in = in
			ctx, end := context.WithCancel(t.Context())
			fed := make(chan error, 1)
			go func() { // ends with the report, or with the command
				_, err := fmt.Fprintln(feed, c.line)
				if err == nil {
					err = s.log.wait(ctx, "is not sent (1 so far): ")
				}
				if err == nil {
					_, err = fmt.Fprintln(feed, c.line)
				}
				fed <- errors.Join(err, feed.Close())
			}()
			status := s.run(append([]string{"send", "-lines"}, c.args...)...)
			end()
			require.NoError(t, <-fed)
			require.Equal(t, c.status, status, s.log.String())
			require.Contains(t, s.log.String(), "hubline: 2 messages were not sent; the first: ")
		})
	}
}

// The first of many is printed, then the second, the fourth and so on.
func TestManyFailuresArePrintedNowAndThen(t *testing.T) {
	var log strings.Builder
	u := unsent{log: &log}
	require.NoError(t, u.err())
	for n := range 10 {
		u.add(fmt.Sprintf("line %d", n+1), transport.Throttled)
	}
	require.Equal(t, 4, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "line 8 is not sent (8 so far): throttled")
	require.EqualError(t, u.err(), "10 messages were not sent; the first: throttled")
	require.Equal(t, exitLater, statusOf(u.err()))
}

// A broker with MQTT 3.1.1 ends the connection of a device that publishes to a topic of others, and
// has no other answer. The log says what that may be.
func TestATopicThatABrokerDoesNotAllow(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) { // a topic is suspected after several losses, seconds apart
		s := newShell(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{}})
		s.env = map[string]string{target.EnvBroker: s.hub.BrokerURL("pump-1", "mqtts", "localhost:8883")}
		done := make(chan int, 1)
		go func() { // ends with the refusal
			done <- s.run("send", "-body", "x", "-topic", "of/others", "-policy", "immediately")
		}()
		require.NoError(t, s.log.wait(soon(t), "the broker may not allow this device the topic"), s.log.String())
		require.NoError(t, s.hub.SetKeys("pump-1", otherKey, otherKey))
		require.Equal(t, exitRefused, <-done, s.log.String())
		require.NotContains(t, s.log.String(), "the hub's quota")
	})
}

// An empty -body is an empty message: the input, such as that of a loop in a shell, is not read.
func TestAnEmptyBodyIsABody(t *testing.T) {
	s := newShell(t, nil)
	s.in = strings.NewReader("the next line of a loop")
	require.Equal(t, exitOK, s.run("send", "-body", ""))
	require.Equal(t, []string{""}, s.bodies())
	rest, err := io.ReadAll(s.in)
	require.NoError(t, err)
	require.Equal(t, "the next line of a loop", string(rest))
	require.Equal(t, exitUsage, s.run("send", "-body", "", "-lines"))
}

// Without -lines the whole input is one message.
func TestTheInputIsAMessage(t *testing.T) {
	s := newShell(t, nil)
	s.in = strings.NewReader("one\ntwo\n")
	require.Equal(t, exitOK, s.run("send"))
	require.Equal(t, []string{"one\ntwo\n"}, s.bodies())
	s.in = strings.NewReader(strings.Repeat("x", transport.MaxMessageSize+1))
	require.Equal(t, exitUsage, s.run("send"))
	require.Contains(t, s.log.String(), "hubline upload")
}

// After Ctrl-C what was accepted is acknowledged, although the input has not ended, and the status
// is 0.
func TestCtrlCFlushes(t *testing.T) {
	s := newShell(t, nil)
	s.hub.Inject(fault.Fault{Kind: fault.SlowPuback, Times: 100, Delay: 200 * time.Millisecond})
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	in, feed := io.Pipe()
	s.in = in
	fed := make(chan error, 1)
	go func() { // ends when the pipe has taken both texts
		_, err := fmt.Fprint(feed, "one\ntwo\nthree\n")
		if err == nil {
			err = s.hub.WaitMessages(ctx, 3)
		}
		interrupt()
		fed <- err
	}()
	require.Equal(t, exitOK, s.runIn(ctx, "send", "-lines"), s.log.String())
	require.NoError(t, <-fed)
	require.NoError(t, feed.Close())
	require.Equal(t, []string{"one", "two", "three"}, s.bodies())
	require.Contains(t, s.log.String(), "3 acknowledged")
	require.Contains(t, s.log.String(), "Ctrl-C again ends at once")
}

// Without a connection messages stay in the outbox, and the next run sends them first.
func TestTheOutboxSurvivesTheProgram(t *testing.T) {
	s := newShell(t, nil)
	folder := t.TempDir()
	absent := s.hub.Inject(fault.Fault{Kind: fault.Absent})
	s.in = strings.NewReader("one\ntwo\n")
	require.Equal(t, exitLater, s.run("send", "-lines", "-outbox", folder, "-flush-timeout", "300ms"), s.log.String())
	require.Contains(t, s.log.String(), "2 waiting in "+folder)
	require.Empty(t, s.bodies())
	absent.Remove()
	s.in = strings.NewReader("three\n")
	require.Equal(t, exitOK, s.run("send", "-lines", "-outbox", folder), s.log.String())
	require.Equal(t, []string{"one", "two", "three"}, s.bodies())
	require.Equal(t, exitUsage, s.run("send", "-body", "x", "-outbox", s.file("no-folder", "")))
	require.Contains(t, s.log.String(), "hubline: -outbox: ")

	other, err := outbox.Open(folder, nil)
	require.NoError(t, err)
	require.Equal(t, exitUsage, s.run("send", "-body", "x", "-outbox", folder))
	require.Contains(t, s.log.String(), "hubline: -outbox: outbox: another Queue has the folder")
	require.NoError(t, other.Close())
}

// Messages that the outbox cannot read are gone, which the command says.
func TestDamagedMessagesOfTheOutboxAreNamed(t *testing.T) {
	s := newShell(t, nil)
	folder := t.TempDir()
	absent := s.hub.Inject(fault.Fault{Kind: fault.Absent})
	s.in = strings.NewReader("one\ntwo\nthree\n")
	require.Equal(t, exitLater, s.run("send", "-lines", "-outbox", folder, "-flush-timeout", "300ms"), s.log.String())
	absent.Remove()
	files, err := filepath.Glob(filepath.Join(folder, "*.messages"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(files[0], bytes.ReplaceAll(text, []byte("two"), []byte("2wo")), 0o600))
	s.log = buffer{}
	s.in = strings.NewReader("")
	require.Equal(t, exitOK, s.run("send", "-quiet", "-lines", "-outbox", folder), s.log.String())
	require.Equal(t, []string{"one", "three"}, s.bodies())
	require.Contains(t, s.log.String(), "damaged messages in "+folder+", which cannot be sent or were never accepted: 1\n")
}

// On a full disk the input waits for messages to be acknowledged, and the command ends only when
// none is left that could free space.
func TestAFullDiskHoldsTheInputUp(t *testing.T) {
	full := &transport.Error{Kind: transport.Quota, Err: errors.New("the disk is full")}
	for name, c := range map[string]struct {
		waiting []uint64 // at each attempt; the disk has space after them
		status  int
		puts    int
	}{
		"messages wait":         {[]uint64{2, 2, 1}, exitOK, 4},
		"the last file goes":    {[]uint64{1, 0}, exitOK, 3},
		"nothing can make room": {[]uint64{1, 0, 0, 0}, exitFailed, 3},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			puts, lines := 0, 0
			q := &diskQueue{say: func(string, ...any) { lines++ }}
			err := q.onSpace(t.Context(), func() error {
				if puts++; puts > len(c.waiting) {
					return nil
				}
				return full
			}, func() uint64 { return c.waiting[puts-1] })
			require.Equal(t, c.status, statusOf(err))
			require.Equal(t, c.puts, puts)
			require.Equal(t, 1, lines)
		})
	}
	testkit.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		q := &diskQueue{say: func(string, ...any) {}}
		err := q.onSpace(ctx, func() error { return full }, func() uint64 { return 1 })
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

const otherKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

func TestRefusalsHaveAnExitStatus(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		args   []string
		spoil  func(s *shell)
	}{
		"wrong key": {exitRefused, nil, func(s *shell) {
			require.NoError(s.t, s.hub.SetKeys("pump-1", otherKey, otherKey))
		}},
		"wrong key, with an outbox": {exitRefused, []string{"-outbox", t.TempDir(), "-flush-timeout", "10s"}, func(s *shell) {
			require.NoError(s.t, s.hub.SetKeys("pump-1", otherKey, otherKey))
		}},
		"unknown device": {exitRefused, nil, func(s *shell) { require.NoError(s.t, s.hub.RemoveDevice("pump-1")) }},
		"no hub": {exitNetwork, []string{"-connect-timeout", "300ms"}, func(s *shell) {
			s.hub.Inject(fault.Fault{Kind: fault.Absent})
		}},
		"another certificate": {exitTrust, nil, func(s *shell) {
			require.NoError(s.t, s.hub.PresentName("portal.example"))
		}},
		"no service": {exitLater, []string{"-policy", "none"}, func(s *shell) {
			s.hub.Inject(fault.Fault{Kind: fault.RefuseConnect, Times: -1})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t, nil)
			s.t = t
			c.spoil(s)
			require.Equal(t, c.status, s.run(append([]string{"send", "-body", "x"}, c.args...)...), s.log.String())
			require.Empty(t, s.bodies())
		})
	}
}

// A bar is for people: a pipe gets lines alone.
func TestBarsAreForTerminals(t *testing.T) {
	s := newShell(t, nil)
	require.Equal(t, exitOK, s.run("send", "-body", "x", "-count", "10"))
	require.NotContains(t, s.log.String(), "\r")
	s.tool = &tool{logTerminal: true}
	require.Equal(t, exitOK, s.run("send", "-body", "x", "-count", "10", "-rate", "20")) // while it is drawn twice
	require.Contains(t, s.log.String(), "\r")
	require.Equal(t, "[===============               ] 5 of 10, 5/s", barLine(5, 10, time.Second, inCount))
	require.Equal(t, "[==============================] 11 of 10, 11/s", barLine(11, 10, time.Second, inCount))
	require.Equal(t, "7 done, 3/s", barLine(7, 0, 2500*time.Millisecond, inCount))
	require.Equal(t, "[======                        ] 12.0 MB of 60.0 MB, 4.8 MB/s",
		barLine(12e6, 60e6, 2500*time.Millisecond, inBytes))
	require.Equal(t, "[=========================     ] 2.5 GB of 3.0 GB, 1.0 GB/s",
		barLine(25e8, 3e9, 2500*time.Millisecond, inBytes))
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 99949: "99.9 kB", 99950: "100 kB", 999499: "999 kB", 999500: "1.0 MB",
		3e12: "3.0 TB", 2e15: "2000 TB",
	} {
		require.Equal(t, want, inBytes(n))
	}
}

func TestRateLimits(t *testing.T) {
	s := newShell(t, nil)
	begin := time.Now()
	require.Equal(t, exitOK, s.run("send", "-body", "x", "-count", "5", "-rate", "20"))
	require.GreaterOrEqual(t, time.Since(begin), 200*time.Millisecond, "the fifth is due after four intervals")
	require.Len(t, s.bodies(), 5)
}
