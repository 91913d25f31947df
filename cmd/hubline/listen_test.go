package main

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

func TestListenPrintsAndSettles(t *testing.T) {
	for _, name := range []string{"mqtt", "amqp"} {
		s := newShell(t, nil)
		for _, body := range []string{"one", "two", "three"} {
			require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{Body: []byte(body)}))
		}
		require.Equal(t, exitOK, s.run("listen", "-count", "2", "-transport", name), s.log.String())
		require.Equal(t, "one\ntwo\n", s.out.String())
		require.NoError(t, s.hub.WaitC2D(soon(t), "pump-1", hubdata.C2DCompleted, 2))
		require.Equal(t, 2, s.hub.CountC2D("pump-1", hubdata.C2DCompleted), "the third is for the next listener")
	}
}

func TestListenRejects(t *testing.T) {
	s := newShell(t, nil)
	require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{Body: []byte("one")}))
	require.Equal(t, exitOK, s.run("listen", "-count", "1", "-transport", "amqp", "-settle", "reject"))
	require.NoError(t, s.hub.WaitC2D(soon(t), "pump-1", hubdata.C2DRejected, 1))
}

func TestListenJSON(t *testing.T) {
	s := newShell(t, nil)
	require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{MessageID: "7", Body: []byte("\x1b[2J"), CorrelationID: "6",
		UserID: "ann", ContentType: "text/plain", Properties: []hubdata.Property{{Name: "a", Value: "b"}}}))
	require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{Body: []byte{0xff}}))
	require.Equal(t, exitOK, s.run("listen", "-count", "2", "-json"), s.log.String())
	require.NotContains(t, s.out.String(), "\x1b")
	decoder := json.NewDecoder(&s.out.b)
	var first, second printed
	require.NoError(t, decoder.Decode(&first))
	require.NoError(t, decoder.Decode(&second))
	require.Equal(t, "7", first.ID)
	require.Equal(t, "\x1b[2J", *first.Body)
	require.Equal(t, "b", first.Properties["a"])
	require.Equal(t, []string{"6", "ann", "text/plain"}, []string{first.CorrelationID, first.UserID, first.ContentType})
	require.Nil(t, second.Body)
	require.Equal(t, "/w==", second.Base64)
}

// A terminal gets columns, and nothing of a message controls it.
func TestListenAtATerminal(t *testing.T) {
	s := newShell(t, nil)
	s.tool = &tool{outTerminal: true}
	for _, m := range []hubdata.C2D{
		{MessageID: "1", Body: []byte("a\x1b[2Jb"), Properties: []hubdata.Property{{Name: "zone", Value: "3"}}},
		{MessageID: "message-2", Body: []byte("two\nlines\n")},
	} {
		require.NoError(t, s.hub.SendC2D("pump-1", m))
	}
	s.env["NO_COLOR"] = "1"
	require.Equal(t, exitOK, s.run("listen", "-count", "2"))
	text := regexp.MustCompile(`\d\d:\d\d:\d\d`).ReplaceAllString(s.out.String(), "12:00:00")
	require.Equal(t, "12:00:00  1  zone=3  a\ufffd[2Jb\n12:00:00  message-2          two\n"+
		strings.Repeat(" ", 29)+"lines\n", text)

	require.NoError(t, s.hub.WaitC2D(soon(t), "pump-1", hubdata.C2DCompleted, 2))
	delete(s.env, "NO_COLOR")
	s.out = buffer{}
	require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{MessageID: "3"}))
	require.Equal(t, exitOK, s.run("listen", "-count", "1"))
	require.Contains(t, s.out.String(), "\x1b[36m3\x1b[0m")
}

// Messages from before -since are settled and not printed, and do not count.
func TestListenSince(t *testing.T) {
	s := newShell(t, nil)
	s.both = true
	for _, body := range []string{"one", "two"} {
		require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{Body: []byte(body)}))
	}
	wait, stop := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		done <- s.runIn(wait, "listen", "-transport", "amqp", "-count", "1", "-since", "2126-01-01T00:00:00Z")
	}()
	require.NoError(t, s.hub.WaitC2D(soon(t), "pump-1", hubdata.C2DCompleted, 2))
	stop()
	require.Equal(t, exitOK, <-done)
	require.Contains(t, s.out.String(), "2 from before -since: settled and not printed")
	require.NotContains(t, s.out.String(), "one")

	require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{Body: []byte("three")}))
	require.Equal(t, exitOK, s.run("listen", "-transport", "amqp", "-count", "1", "-since", "1h"))
	require.Contains(t, s.out.String(), "three\n")
}

// An output that takes nothing ends the command, and the message is not accepted.
func TestABrokenOutputLosesNoMessage(t *testing.T) {
	l := &listening{connection: &connection{tool: &tool{out: full{}}}, ended: func() {}}
	require.Error(t, l.take(&transport.Message{Body: []byte("one")}, nil))
	require.ErrorIs(t, l.wrote, errFull)
}

type full struct{}

var errFull = errors.New("no space")

func (full) Write([]byte) (int, error) { return 0, errFull }

// A message with QoS 0, which has nothing to acknowledge, counts as well.
func TestListenCountsMessagesWithQoS0(t *testing.T) {
	s := newShell(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{AtMostOnce: true}})
	delete(s.env, target.EnvConnect)
	s.env[target.EnvBroker] = s.hub.BrokerURL("pump-1", "mqtts", "localhost:8883") + "&version=5"
	require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{Body: []byte("down")}))
	wait := soon(t)
	require.Equal(t, exitOK, s.runIn(wait, "listen", "-count", "1"), s.log.String())
	require.NoError(t, wait.Err(), "the command ended by itself")
	require.Equal(t, "down\n", s.out.String())
}

// A connection that ends while a message is printed changes no count. Without an acknowledgement a
// hub delivers the message again, to the next listener.
func TestListenCountsAMessageOfALostConnection(t *testing.T) {
	for _, atMostOnce := range []bool{true, false} {
		s := newShell(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{AtMostOnce: atMostOnce}})
		delete(s.env, target.EnvConnect)
		s.env[target.EnvBroker] = s.hub.BrokerURL("pump-1", "mqtts", "localhost:8883") + "&version=5"
		wait := soon(t)
		s.out.then = func() {
			s.hub.Drop("pump-1")
			if err := s.log.wait(wait, "next attempt"); err != nil {
				t.Error(err)
			}
		}
		require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{Body: []byte("down")}))
		require.Equal(t, exitOK, s.runIn(wait, "listen", "-count", "1"), s.log.String())
		require.NoError(t, wait.Err(), "the command ended by itself")
		require.Equal(t, "down\n", s.out.String())
		if atMostOnce {
			continue
		}
		s.out.then = nil
		require.Equal(t, exitOK, s.runIn(wait, "listen", "-count", "1"), s.log.String())
		require.Equal(t, "down\ndown\n", s.out.String())
	}
}
