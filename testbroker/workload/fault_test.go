package workload_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/workload"
)

// sign signs with api-version, and returns an answer that need not be JSON.
func (d *daemon) sign() (status int, text string, err error) {
	status, raw, err := d.do("POST", path(d.filter, "sign")+"?api-version=2018-06-28", signBody("x"))
	return status, string(raw), err
}

// requireSigned requires that the server signs.
func (d *daemon) requireSigned() {
	d.t.Helper()
	status, text, err := d.sign()
	require.NoError(d.t, err)
	require.Equal(d.t, 200, status, text)
	require.Contains(d.t, text, digest(d.filter.PrimaryKey, "x"))
}

func TestEveryFaultHasAName(t *testing.T) {
	seen := make(map[string]bool)
	for _, k := range workload.FaultKinds() {
		require.NotContains(t, k.String(), "(")
		seen[k.String()] = true
	}
	require.Len(t, seen, 15)
	require.Equal(t, "FaultKind(99)", workload.FaultKind(99).String())
	require.Equal(t, workload.CallSign, workload.FaultWrongDigest.Call())
	require.Equal(t, workload.CallAny, workload.FaultSlow.Call())
	require.Len(t, workload.Calls(), 8)
	require.Equal(t, "Call(99)", workload.Call(99).String())
	require.Equal(t, "Modules", workload.CallModules.String())
}

// Each fault happens once, and the next call is in order.
func TestFaults(t *testing.T) {
	right := func(d *daemon) string { return digest(d.filter.PrimaryKey, "x") }
	for _, row := range []struct {
		fault  workload.Fault
		status int    // 0: the call fails
		text   string // in the answer
		logged int    // the status in the log
		fails  error
	}{
		{fault: workload.Fault{Kind: workload.FaultAnswerStatus}, status: 500, text: `{"message":"fault AnswerStatus"}`,
			logged: 500},
		{fault: workload.Fault{Kind: workload.FaultAnswerStatus, Status: 503}, status: 503, text: "fault", logged: 503},
		{fault: workload.Fault{Kind: workload.FaultCutBefore}, fails: syscall.ECONNRESET},
		{fault: workload.Fault{Kind: workload.FaultCutAfter}, fails: syscall.ECONNRESET},
		{fault: workload.Fault{Kind: workload.FaultCutDuring}, fails: io.ErrUnexpectedEOF, status: 200},
		{fault: workload.Fault{Kind: workload.FaultNotHTTP}, fails: errors.New("malformed HTTP")},
		{fault: workload.Fault{Kind: workload.FaultNotHTTP, Bytes: []byte("HTTP/1.1 teapot\r\n\r\n")},
			fails: errors.New("malformed HTTP status code")},
		{fault: workload.Fault{Kind: workload.FaultGarbage}, status: 200, text: `{"digest":`, logged: 200},
		{fault: workload.Fault{Kind: workload.FaultGarbage, Bytes: []byte("<html>")}, status: 200,
			text: "<html>", logged: 200},
		{fault: workload.Fault{Kind: workload.FaultMalformed}, status: 200, text: `{"digest":"--`, logged: 200},
		{fault: workload.Fault{Kind: workload.FaultOversized, Size: 1000}, status: 200,
			text: `{"digest":"` + strings.Repeat("A", 1000) + `"}`, logged: 200},
		{fault: workload.Fault{Kind: workload.FaultUnknownModule}, status: 404, text: "generation id", logged: 404},
		{fault: workload.Fault{Kind: workload.FaultWrongDigest}, status: 200, text: "digest", logged: 200},
	} {
		testkit.Run(t, row.fault.Kind.String(), func(t *testing.T) {
			d := newDaemon(t, nil, nil)
			in := d.server.Inject(row.fault)
			status, text, err := d.sign()
			require.Equal(t, row.status, status)
			if row.fails != nil {
				require.ErrorContains(t, err, row.fails.Error())
			} else {
				require.NoError(t, err)
				require.Contains(t, text, row.text)
				require.NotContains(t, text, right(d))
			}
			require.Equal(t, 1, in.Fired())
			d.requireSigned()
			require.Equal(t, 1, in.Fired())
			log := d.server.Log()
			require.Len(t, log, 2)
			require.Equal(t, []workload.FaultKind{row.fault.Kind}, log[0].Faults)
			require.Equal(t, row.logged, log[0].Status)
			require.Empty(t, log[1].Faults)
		})
	}
}

func TestAWrongDigestIsOfTheRightForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		d.server.Inject(workload.Fault{Kind: workload.FaultWrongDigest})
		_, a := d.call("POST", path(d.filter, "sign"), signBody("x"))
		raw, err := base64.StdEncoding.DecodeString(a["digest"].(string))
		require.NoError(t, err)
		require.Len(t, raw, 32)
		require.NotEqual(t, digest(d.filter.PrimaryKey, "x"), a["digest"])
	})
}

func TestAnOversizedAnswerIsSixteenMegabytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		d.server.Inject(workload.Fault{Kind: workload.FaultOversized, Call: workload.CallTrustBundle})
		d.requireSigned()
		_, text, err := d.do("GET", "/trust-bundle?api-version=2018-06-28", "")
		require.NoError(t, err)
		require.Len(t, text, 16<<20+len(`{"certificate":""}`))
	})
}

func TestSlowAndMuteAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		begin := time.Now()
		d.server.Inject(workload.Fault{Kind: workload.FaultSlow, Delay: 10 * time.Minute})
		d.requireSigned()
		require.Equal(t, 10*time.Minute, time.Since(begin))

		for _, f := range []workload.Fault{{Kind: workload.FaultMute}, {Kind: workload.FaultSlow, Delay: time.Hour}} {
			d.client.Timeout = time.Minute
			d.server.Inject(f)
			_, _, err := d.sign()
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			require.True(t, timeout.Timeout())
			synctest.Wait()
			log := d.server.Log()
			require.Zero(t, log[len(log)-1].Status)
		}
		d.requireSigned()
	})
}

// Close ends a request that has no answer.
func TestCloseEndsMuteRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		d.server.Inject(workload.Fault{Kind: workload.FaultMute})
		failed := make(chan error, 1)
		go func() {
			_, _, err := d.sign()
			failed <- err
		}()
		synctest.Wait()
		require.Empty(t, failed)
		require.NoError(t, d.server.Close())
		require.Error(t, <-failed)
	})
}

func TestFaultsHitTheirTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		statuses := func(n int) (all []int) {
			for range n {
				status, _, err := d.sign()
				require.NoError(t, err)
				all = append(all, status)
			}
			return all
		}
		d.server.Inject(workload.Fault{Kind: workload.FaultAnswerStatus, After: 1, Times: 2})
		require.Equal(t, []int{200, 500, 500, 200}, statuses(4))

		in := d.server.Inject(workload.Fault{Kind: workload.FaultAnswerStatus, Times: -1, Module: "edge-2/filter"})
		require.Equal(t, []int{200}, statuses(1))
		in.Remove()
		in = d.server.Inject(workload.Fault{Kind: workload.FaultAnswerStatus, Times: -1, Call: workload.CallEncrypt})
		require.Equal(t, []int{200}, statuses(1))
		in.Remove()

		in = d.server.Inject(workload.Fault{Kind: workload.FaultAnswerStatus, Times: -1, For: time.Minute})
		require.Equal(t, []int{500, 500}, statuses(2))
		time.Sleep(time.Minute)
		require.Equal(t, []int{200}, statuses(1))
		in.Remove()
		in.Remove()
	})
}

func TestDrawsRepeatWithASeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs [2][]int
		for i := range runs {
			d := newDaemon(t, nil, &workload.Options{Seed: 7})
			d.server.Inject(workload.Fault{Kind: workload.FaultAnswerStatus, Times: -1, Probability: 0.5})
			for range 20 {
				status, _, err := d.sign()
				require.NoError(t, err)
				runs[i] = append(runs[i], status)
			}
		}
		require.Equal(t, runs[0], runs[1])
		require.Contains(t, runs[0], 200)
		require.Contains(t, runs[0], 500)
	})
}

func TestAnAbsentServerRefusesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		d.requireSigned()
		require.False(t, d.server.Stopped())
		in := d.server.Inject(workload.Fault{Kind: workload.FaultAbsent, For: time.Minute})
		require.True(t, d.server.Stopped())
		synctest.Wait() // the client has seen that its connection is cut
		_, _, err := d.sign()
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		time.Sleep(59 * time.Second)
		_, _, err = d.sign()
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		time.Sleep(time.Second)
		synctest.Wait()
		d.requireSigned()
		require.Equal(t, 1, in.Fired())

		d.server.Stop()
		in = d.server.Inject(workload.Fault{Kind: workload.FaultAbsent})
		require.NoError(t, d.server.Start())
		_, err = d.server.Dial(t.Context(), "tcp", "x:1")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		in.Remove()
		d.requireSigned()

		in = d.server.Inject(workload.Fault{Kind: workload.FaultAbsent, For: time.Hour})
		require.NoError(t, d.server.Close()) // stops the timer
		in.Remove()
	})
}

// The socket is gone from the file system, and open connections are cut.
func TestTheSocketOfAnAbsentServerIsGone(t *testing.T) {
	d := newDaemon(t, nil, nil)
	addr := filepath.Join(t.TempDir(), "w.sock")
	_, err := d.server.Listen("unix", addr)
	require.NoError(t, err)
	d.dial(func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", addr) })
	d.requireSigned()
	open, err := net.Dial("unix", addr)
	require.NoError(t, err)
	_, err = io.WriteString(open, "GET /modules HTTP/1.1\r\n")
	require.NoError(t, err)

	in := d.server.Inject(workload.Fault{Kind: workload.FaultAbsent})
	require.NoFileExists(t, addr)
	_, err = open.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, open.Close())
	d.client.CloseIdleConnections() // it may not have seen yet that they are cut
	_, _, err = d.sign()
	require.ErrorIs(t, err, syscall.ENOENT)
	in.Remove()
	d.requireSigned()
}

func TestInjectPanicsForAMistake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		for _, f := range []workload.Fault{
			{}, {Kind: 99}, {Kind: workload.FaultAnswerStatus, Status: 99}, {Kind: workload.FaultAnswerStatus, Status: 600},
			{Kind: workload.FaultWrongDigest, Call: workload.CallTrustBundle}, {Kind: workload.FaultSlow, For: time.Minute},
			{Kind: workload.FaultAbsent, Times: 2}, {Kind: workload.FaultAbsent, Probability: .5},
			{Kind: workload.FaultAbsent, After: 1},
		} {
			require.Panics(t, func() { d.server.Inject(f) })
		}
	})
}

// The log is bounded, the counts go on.
func TestTheLogKeepsTheNewestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		status, _, err := d.do("GET", "/other", "")
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, status)
		require.Equal(t, workload.CallAny, d.server.Log()[0].Call)
		for range 1000 {
			_, _, err := d.do("GET", "/manifest-trust-bundle?api-version=2018-06-28", "")
			require.NoError(t, err)
		}
		require.Len(t, d.server.Log(), 1000)
		require.Equal(t, "/manifest-trust-bundle", d.server.Log()[0].Path)
		require.Equal(t, 1001, d.server.Count(workload.CallAny))
		require.Equal(t, 1000, d.server.Count(workload.CallManifestTrustBundle))
		require.Zero(t, d.server.Count(workload.CallSign))
	})
}

func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		in := d.server.Inject(workload.Fault{Kind: workload.FaultAnswerStatus, Times: 2})
		go func() {
			for range 3 {
				time.Sleep(time.Minute)
				_, _, err := d.sign()
				if err != nil {
					t.Error(err)
				}
			}
		}()
		begin := time.Now()
		require.NoError(t, in.WaitFired(t.Context(), 2))
		require.Equal(t, 2*time.Minute, time.Since(begin))
		require.NoError(t, d.server.WaitCount(t.Context(), workload.CallSign, 3))
		require.Equal(t, 3*time.Minute, time.Since(begin))
		require.NoError(t, d.server.WaitCount(t.Context(), workload.CallAny, 3))

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.ErrorIs(t, in.WaitFired(ctx, 3), context.DeadlineExceeded)
		over := make(chan error)
		go func() { over <- d.server.WaitCount(t.Context(), workload.CallSign, 4) }()
		synctest.Wait()
		require.NoError(t, d.server.Close())
		require.ErrorIs(t, <-over, net.ErrClosed)
		require.ErrorIs(t, in.WaitFired(t.Context(), 3), net.ErrClosed)
	})
}
