package telemetry

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

func newLog(t *testing.T, most int) *Log {
	l := new(Log)
	require.NoError(t, l.Init(hubdata.EventOptions{}, "hub", most, time.Now))
	records := new(keep.Saver)
	records.Init(nil, nil)
	l.Keep(records, func(identity.Identity) Origin { return Origin{} })
	return l
}

// A caller that has read the log once does not keep the messages in memory that the hub forgets.
func TestForgottenMessagesAreFreedAfterARead(t *testing.T) {
	for name, read := range map[string]func(*Log) int{
		"Messages": func(l *Log) int { return len(l.Messages()) },
		"Update":   func(l *Log) int { return len(new(Reading).Update(l)) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, 2)
			body := make([]byte, 1024)
			first := weak.Make(&body[0])
			l.Add(hubdata.Message{DeviceID: "dev-1", Body: body}, Origin{})
			body = nil
			require.Equal(t, 1, read(l))
			runtime.GC()
			require.NotNil(t, first.Value(), "kept")
			for range 100 {
				l.Add(hubdata.Message{DeviceID: "dev-1"}, Origin{})
			}
			runtime.GC()
			require.Nil(t, first.Value(), "forgotten")
		})
	}
}

// A reading that is brought up to date is the same as a new one.
func TestReadingsFollowTheLog(t *testing.T) {
	l := newLog(t, 3)
	var r Reading
	bodies := func(all []hubdata.Message) (text string) {
		for _, m := range all {
			text += string(m.Body)
		}
		return text
	}
	number := 0
	// How many are added; below 0 after a clear.
	for _, step := range []int{0, 1, 1, 0, 1, 1, 2, 3, 5, -1, 0, -1, 1, -2, -3} {
		if step < 0 {
			l.Clear()
		}
		for range max(step, -step) {
			number++
			l.Add(hubdata.Message{DeviceID: "dev-1", Body: []byte{byte('A' + number)}}, Origin{})
		}
		require.Equal(t, bodies(l.Messages()), bodies(r.Update(l)), "after %d messages", number)
	}
}

// A message without a route is in the log, and no back end sees it.
func TestUnroutedMessagesAreNoEvents(t *testing.T) {
	l := newLog(t, 3)
	for i, unrouted := range []bool{true, false, true, false, true} {
		l.Add(hubdata.Message{DeviceID: "dev-1", Body: []byte{byte('a' + i)}, Unrouted: unrouted}, Origin{})
	}
	require.Len(t, l.Messages(), 3)
	all, _, _ := l.Read(nil, l.PartitionOf("dev-1"), 0, 10)
	require.Len(t, all, 1, "b is forgotten")
	require.Equal(t, "d", string(all[0].Message.Body))
}
