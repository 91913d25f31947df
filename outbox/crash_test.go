package outbox_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// victimEnv has the connection string, the address of the hub, the folder, and the number of the
// first message, for a process that will be killed.
const victimEnv = "HUBLINE_OUTBOX_VICTIM"

func TestMain(m *testing.M) {
	if settings := os.Getenv(victimEnv); settings != "" {
		if err := victim(strings.Split(settings, "\n")); err != nil {
			fmt.Println("victim:", err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// victim puts messages from four goroutines and prints the number of each safe one, until it is
// killed.
func victim(settings []string) error {
	creds, err := device.ParseConnectionString(settings[0])
	if err != nil {
		return err
	}
	c, err := device.New(creds, mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true, Addr: settings[1]}}), nil)
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	q, err := outbox.Open(settings[2], &outbox.Options{MaxBytes: 8 << 20})
	if err != nil {
		return err
	}
	go func() { fmt.Println("victim:", q.Run(context.Background(), c)) }()
	n, err := strconv.Atoi(settings[3])
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 20_000 {
				mu.Lock()
				n++
				m := numbered(n)
				mu.Unlock()
				if err := q.Put(context.Background(), m); err != nil {
					fmt.Println("victim:", err)
					return
				}
				fmt.Println(m.ID) // in one write
			}
		})
	}
	wait.Wait()
	return io.EOF // it should have been killed before
}

// Every message for which Put returned nil arrives, whenever the process is killed.
func TestKillLosesNothing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	hub := hubfixture.Open(t, nil, deviceID)
	addr, err := hub.Listen(testbroker.PortMQTT, "127.0.0.1:0")
	require.NoError(t, err)
	folder := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	safe := map[string]bool{}
	const lives, span = 12, 100_000
	for life := range lives {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), victimEnv+"="+strings.Join([]string{hub.ConnectionString(deviceID), addr.String(),
			folder, strconv.Itoa(life * span)},
			"\n"))
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		limit := 1 + rng.IntN(400)
		lines := bufio.NewScanner(out)
		for n := 0; n < limit && lines.Scan(); n++ {
			require.NotContains(t, lines.Text(), "victim")
			safe[lines.Text()] = true
			if n == limit/2 && life%3 == 0 {
				hub.Drop(deviceID)
			}
		}
		require.NoError(t, cmd.Process.Kill())
		for lines.Scan() { // printed before the end
			safe[lines.Text()] = true
		}
		require.Error(t, cmd.Wait())
	}
	q := open(t, folder, nil)
	waited := q.Stats().Waiting
	c := newClient(t, hub, nil)
	stop := start(q, c)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, q.Flush(ctx))
	require.Zero(t, q.Stats().Damaged)
	require.Error(t, stop())
	require.NoError(t, c.Close())
	require.NoError(t, q.Close())
	have := map[string]bool{}
	for _, id := range arrived(hub) {
		have[id] = true
	}
	for id := range safe {
		require.True(t, have[id], "message %s was safe, and is lost", id)
	}
	require.Empty(t, hub.Conflicts())
	t.Logf("%d safe messages in %d lives, %d different ones at the hub, %d in all; %d waited at the end", len(safe), lives,
		len(have), hub.Len(), waited)
}

// Damaged segments stop neither the queue nor the messages of the others.
func TestDamageStaysInItsSegment(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	const lives, each = 6, 5
	whole := newDisk()
	for life := range lives {
		q := openOn(t, whole, &outbox.Options{SyncEvery: -1})
		put(t, q, life*each, (life+1)*each)
		require.NoError(t, q.Close())
	}
	paths := whole.segments(folder)
	require.Len(t, paths, lives)
	for round := range 3000 {
		d := whole.kill()
		var good []string
		for life, path := range paths {
			at := rng.IntN(int(d.size(path)))
			switch rng.IntN(6) {
			case 0:
				d.edit(path, func(b []byte) []byte { b[at] ^= 1 << rng.IntN(8); return b })
			case 1:
				d.edit(path, func(b []byte) []byte { return b[:at] })
			case 2:
				d.edit(path, func(b []byte) []byte { clear(b[at:]); return b })
			case 3:
				require.NoError(t, d.Remove(path))
			default:
				good = append(good, ids(life*each, (life+1)*each)...)
			}
		}
		q := openOn(t, d, &outbox.Options{SyncEvery: -1})
		waiting := q.Stats().Waiting
		put(t, q, 100, 103)
		got := take(t, q)
		require.Len(t, got, int(waiting)+3, "round %d: what waits is counted truly", round)
		require.Subset(t, got, append(good, ids(100, 103)...), "round %d", round)
		last := -1
		for _, id := range got {
			n, err := strconv.Atoi(id)
			require.NoError(t, err)
			require.Greater(t, n, last, "round %d", round)
			last = n
		}
		require.NoError(t, q.Close())
	}
}

// bodies runs the queue until no message waits, with its own client and hub.
func bodies(t testing.TB, q *outbox.Queue) (got []string) {
	t.Helper()
	hub := hubfixture.Open(t, nil, deviceID)
	c := newClient(t, hub, nil)
	stop := start(q, c)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, q.Flush(ctx))
	require.ErrorIs(t, stop(), context.Canceled)
	require.NoError(t, c.Close())
	for _, m := range hub.Messages() {
		require.Equal(t, string(m.Body), fmt.Sprintf(`{"n":%s}`, m.MessageID))
	}
	return arrived(hub)
}

// The largest and strangest messages are read back unchanged; other bytes give an error.
func FuzzMessage(f *testing.F) {
	f.Add("id", "c", "t", "e", "part", "a/b", byte(3), int64(1), int64(-1), "name", "value", []byte("body"))
	f.Add("id", "c", "t", "e", "part", "a/b", byte(7), int64(1), int64(-1), "name", "value", []byte("body"))
	f.Add("id", "", "t", "", "", "", byte(12), int64(0), int64(0), "", "", []byte("\x02\x04"))
	f.Add("", "", "", "", "", "", byte(0), int64(0), int64(0), "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, id, correlation, contentType, encoding, component, topic string, flags byte, created,
		expires int64, name, value string, body []byte) {
		m := &transport.Message{ID: id, CorrelationID: correlation, ContentType: contentType, ContentEncoding: encoding,
			Component: component, Topic: topic, ResponseTopic: component + topic, Retain: flags&1 != 0, AtMostOnce: flags&2 != 0,
			Body: body}
		if flags&4 != 0 && id+topic != "" {
			m.Output = id
			m.System = &transport.SystemProperties{UserID: topic, Schema: id, DiagnosticContext: contentType}
		}
		if flags&8 != 0 {
			m.Output = component + "o"
		}
		if created != 0 {
			m.Created = time.Unix(0, created)
		}
		if expires != 0 {
			m.Expires = time.Unix(0, expires)
		}
		if name != "" {
			m.Properties = []transport.Property{{Name: name, Value: value}, {Name: value, Value: name}}
		}
		encoded := outbox.AppendMessage([]byte("before"), m)[len("before"):]
		var got transport.Message
		require.NoError(t, outbox.ReadMessage(encoded, &got))
		require.True(t, got.Created.Equal(m.Created) && got.Expires.Equal(m.Expires))
		got.Created, got.Expires = m.Created, m.Expires
		require.Equal(t, string(m.Body), string(got.Body))
		got.Body = m.Body
		if len(m.Properties) == 0 {
			got.Properties = nil
		}
		require.Equal(t, *m, got)
		for n := range encoded {
			require.Error(t, outbox.ReadMessage(encoded[:n], &got))
		}
		_ = outbox.ReadMessage(body, &got) // must not panic
	})
}
