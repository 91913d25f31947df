package device_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// heapGrowth returns by how much the live heap grows during f, in bytes; data of f must still be in
// use.
func heapGrowth(f func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// deaf makes the first session's Do block on the first answer to a method, as with a hub that does
// not read.
func deaf(f *fake) {
	f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
		if r.Op == transport.OpRespond && s.conn == 1 {
			<-s.dead
		}
		return transport.Reply{}, false
	}
}

func TestCallsAndAnswersAreBoundedWhileTheHubReadsNothing(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		deaf(f)
		var lostAnswers atomic.Int64
		c, _ := client(t, f, &device.Options{MethodLimit: 64,
			Trace: &device.Trace{AnswerLost: func(string) { lostAnswers.Add(1) }}})
		body := `"` + strings.Repeat("x", 64<<10) + `"`
		require.NoError(t, c.HandleMethod("echo",
			func(_ context.Context, m *device.MethodCall) (int, []byte) { return 200, m.Body }))
		open(t, c)
		const calls = 2000 // 128 MB
		grown := heapGrowth(func() {
			for i := range calls {
				require.True(t, f.last().call(fmt.Sprint(i), "echo", body))
				synctest.Wait()
			}
		})
		require.Less(t, grown, int64(6<<20), "bytes of calls and answers")
		s := c.Stats()
		require.LessOrEqual(t, s.MethodCalls, uint64(4<<20/(64<<10))+1)
		require.EqualValues(t, 32, s.MethodsRefused, "answers with 503 that wait")
		require.EqualValues(t, calls, s.MethodCalls+s.MethodsRefused+s.AnswersLost)
		require.EqualValues(t, lostAnswers.Load(), s.AnswersLost)

		f.lose(transport.Network, time.Minute)
		for i := range 60 {
			f.last().call(fmt.Sprint("again ", i), "echo", body)
			synctest.Wait()
		}
		require.EqualValues(t, s.MethodCalls+60, c.Stats().MethodCalls, "the next session begins with all of the room")
	})
}

func TestCallsAreBoundedByCountWhileTheHubReadsNothing(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
			if r.Op == transport.OpRespond { // in each session
				<-s.dead
			}
			return transport.Reply{}, false
		}
		c, _ := client(t, f, &device.Options{MethodLimit: 2})
		require.NoError(t, c.HandleMethod("", ok))
		open(t, c)
		for session := range uint64(3) { // answers that were lost with a session hold no room in the next one
			for i := range 1000 {
				f.last().call(fmt.Sprint(i), "x", "")
				synctest.Wait()
			}
			s := c.Stats()
			require.Equal(t, (session+1)*(2+16+32), s.MethodCalls,
				"MethodLimit, those that wait, and answers, one of them with the session")
			require.Equal(t, (session+1)*32, s.MethodsRefused)
			if session == 0 {
				require.EqualValues(t, 1000, s.MethodCalls+s.MethodsRefused+s.AnswersLost)
			}
			f.lose(transport.Network, time.Minute)
		}
	})
}

// Answers wait while a connection subscribes. Those that are lost with it hold no room in the next
// one, neither of handlers' answers nor of refusals nor of bytes.
func TestAnswersThatWaitForTheSubscriptionHoldNoRoomAfterwards(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		f.subscribe = func(int) error { return errHold }
		c, _ := client(t, f, &device.Options{MethodLimit: 2})
		answer := []byte(`"` + strings.Repeat("x", 64<<10) + `"`) // 50 of them are most of the memory
		require.NoError(t, c.HandleMethod("x", func(context.Context, *device.MethodCall) (int, []byte) {
			return 200, answer
		}))
		require.NoError(t, c.Start())
		synctest.Wait()
		for session := range uint64(3) {
			for i := range 100 {
				f.last().call(fmt.Sprint(i), "x", "")
				f.last().call(fmt.Sprint("other ", i), "y", "")
				synctest.Wait()
			}
			s := c.Stats()
			require.Equal(t, (session+1)*(2+16+32), s.MethodCalls)
			require.Equal(t, (session+1)*32, s.MethodsRefused)
			f.lose(transport.Network, time.Minute)
			require.Equal(t, (session+1)*200, c.Stats().AnswersLost)
		}
	})
}

func TestWaitingCallsThatAreLostHoldNoRoomAfterwards(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, _ := client(t, f, &device.Options{MethodLimit: 1})
		require.NoError(t, c.HandleMethod("", func(ctx context.Context, _ *device.MethodCall) (int, []byte) {
			<-ctx.Done()
			return 200, nil
		}))
		open(t, c)
		body := `"` + strings.Repeat("x", 200<<10) + `"` // 17 of them are most of the memory
		f.last().call("runs", "x", body)
		for range 2 {
			for i := range 16 {
				f.last().call(fmt.Sprint(i), "x", body)
			}
			f.lose(transport.Network, time.Second)
		}
		require.EqualValues(t, 1+2*16, c.Stats().MethodCalls)
		require.Zero(t, c.Stats().MethodsRefused)
	})
}

// A call that waits was taken before the answers used up the memory; it is refused at its turn.
func TestCallsThatWaitAreNotRunWhileAnswersHoldAllMemory(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		deaf(f)
		c, _ := client(t, f, &device.Options{MethodLimit: 1})
		release := make(chan struct{})
		answer := []byte(`"` + strings.Repeat("x", 128<<10-2) + `"`)
		var ran atomic.Int32
		require.NoError(t, c.HandleMethod("", func(_ context.Context, m *device.MethodCall) (int, []byte) {
			if ran.Add(1) > 30 {
				<-release
			}
			return 200, answer
		}))
		open(t, c)
		for i := range 30 { // the session takes none
			f.last().call(fmt.Sprint(i), "x", "")
			synctest.Wait()
		}
		for i := range 1 + 16 {
			f.last().call(fmt.Sprint("slow ", i), "x", "")
		}
		synctest.Wait()
		require.EqualValues(t, 30+17, c.Stats().MethodCalls)
		require.Zero(t, c.Stats().MethodsRefused)
		close(release)
		synctest.Wait()
		require.EqualValues(t, 30+3, ran.Load(), "4 MiB are 32 answers, and one more may come on top")
		require.EqualValues(t, 14, c.Stats().MethodsRefused)
	})
}

// An id is remembered while its call is pending, and for 32 calls after that.
func TestTheIdsOfOldCallsAreForgotten(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, _ := client(t, f, nil)
		runs := 0
		require.NoError(t, c.HandleMethod("",
			func(context.Context, *device.MethodCall) (int, []byte) { runs++; return 200, nil }))
		open(t, c)
		id := strings.Repeat("i", 1000)
		grown := heapGrowth(func() {
			for i := range 5000 {
				f.last().call(fmt.Sprint(i, id), "x", "")
				synctest.Wait()
				f.mu.Lock()
				f.asked = nil
				f.mu.Unlock()
			}
		})
		require.Less(t, grown, int64(1<<20))
		f.last().call(fmt.Sprint(4999-31, id), "x", "")
		synctest.Wait()
		require.Equal(t, 5000, runs, "known")
		f.last().call(fmt.Sprint(4999-32, id), "x", "")
		synctest.Wait()
		require.Equal(t, 5001, runs, "forgotten")
	})
}

func TestACallWithAnEndlessNameOrIdIsIgnored(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, _ := client(t, f, nil)
		require.NoError(t, c.HandleMethod("", ok))
		open(t, c)
		long := strings.Repeat("x", 1<<10)
		require.True(t, f.last().call(long, long, ""))
		require.False(t, f.last().call(long+"x", "x", ""))
		require.False(t, f.last().call("x", long+"x", ""))
		synctest.Wait()
		require.Len(t, f.answers(), 1)
	})
}
