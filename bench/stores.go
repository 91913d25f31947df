package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/autopaho/queue/file"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	bolt "go.etcd.io/bbolt"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// A store keeps messages in files. The first one is the floor.
type store struct {
	name   string
	noSync bool // it never syncs
	open   func(folder string, synced bool) (*opened, error)
}

// opened is an open store. put stores one message, and syncs it if the store is synced.
type opened struct {
	put   func(ctx context.Context, body []byte) error
	close func() error
}

// allStores are the compared stores.
var allStores = []store{
	{"a write for each message", false, openRawFile},
	{"Hubline's outbox", false, openOutbox},
	{"bbolt, Batch", false, openBolt},
	{"JetStream, a server in the process", false, openJetStream},
	{"autopaho, queue in files", true, openFileQueue},
}

// storedSize is the body of a stored message.
const storedSize = 300

// fill returns how many messages a second the callers store, each one after the other.
func (s *store) fill(ctx context.Context, synced bool, callers int, turn time.Duration) (rate float64, err error) {
	folder, err := os.MkdirTemp("", "stores")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	o, err := s.open(folder, synced)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	body := make([]byte, storedSize)
	if err := o.put(ctx, body); err != nil { // makes the files
		return 0, err
	}
	var stored atomic.Int64
	failed := make(chan error, callers)
	began := time.Now()
	var wait sync.WaitGroup
	for range callers {
		wait.Go(func() {
			for time.Since(began) < turn {
				if err := o.put(ctx, body); err != nil {
					failed <- err
					return
				}
				stored.Add(1)
			}
		})
	}
	wait.Wait()
	took := time.Since(began)
	close(failed)
	return float64(stored.Load()) / took.Seconds(), <-failed
}

// openRawFile appends to a file, of which callers have to take turns.
func openRawFile(folder string, synced bool) (*opened, error) {
	f, err := os.Create(filepath.Join(folder, "raw"))
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	at := int64(0)
	return &opened{func(_ context.Context, body []byte) error {
		mu.Lock()
		defer mu.Unlock()
		n, err := f.WriteAt(body, at)
		if at += int64(n); err == nil && synced {
			err = f.Sync()
		}
		return err
	}, f.Close}, nil
}

func openOutbox(folder string, synced bool) (*opened, error) {
	o := &outbox.Options{Overflow: device.OverflowDropOldest}
	if !synced {
		o.SyncEvery = -1
	}
	q, err := outbox.Open(folder, o)
	if err != nil {
		return nil, err
	}
	return &opened{func(ctx context.Context, body []byte) error {
		return q.Put(ctx, &transport.Message{Body: body})
	}, q.Close}, nil
}

func openBolt(folder string, synced bool) (*opened, error) {
	db, err := bolt.Open(filepath.Join(folder, "bolt"), 0o600, &bolt.Options{NoSync: !synced})
	if err != nil {
		return nil, err
	}
	name := []byte("messages")
	if err := db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket(name)
		return err
	}); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &opened{func(_ context.Context, body []byte) error {
		return db.Batch(func(tx *bolt.Tx) error {
			b := tx.Bucket(name)
			b.FillPercent = 1 // keys only grow
			n, err := b.NextSequence()
			if err != nil {
				return err
			}
			return b.Put(binary.BigEndian.AppendUint64(nil, n), body)
		})
	}, db.Close}, nil
}

// startTime is the time limit for the server.
const startTime = 10 * time.Second

// openJetStream starts a server: its file store has no interface of its own. No socket is used.
func openJetStream(folder string, synced bool) (*opened, error) {
	s, err := server.NewServer(&server.Options{JetStream: true, StoreDir: folder, SyncAlways: synced, DontListen: true,
		NoLog: true, NoSigs: true})
	if err != nil {
		return nil, err
	}
	s.Start()
	closeAll := func() error {
		s.Shutdown()
		s.WaitForShutdown()
		return nil
	}
	if !s.ReadyForConnections(startTime) {
		return nil, errors.Join(errors.New("the server does not start"), closeAll())
	}
	c, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	js, err := jetstream.New(c)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), startTime)
		defer cancel()
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "messages", Subjects: []string{"m"},
			Storage: jetstream.FileStorage})
	}
	if err != nil {
		c.Close()
		return nil, errors.Join(err, closeAll())
	}
	return &opened{func(ctx context.Context, body []byte) error {
		_, err := js.Publish(ctx, "m", body)
		return err
	}, func() error {
		c.Close()
		return closeAll()
	}}, nil
}

func openFileQueue(folder string, _ bool) (*opened, error) {
	q, err := file.New(folder, "", "")
	if err != nil {
		return nil, err
	}
	return &opened{func(_ context.Context, body []byte) error { return q.Enqueue(bytes.NewReader(body)) },
		func() error { return nil }}, nil
}

// storeSpeed measures how many messages a second stores in files take, in turns.
func storeSpeed(args []string) error {
	flags := flag.NewFlagSet("outbox", flag.ExitOnError)
	rounds := flags.Int("rounds", 5, "rounds, in each of which each store has a turn")
	turn := flags.Duration("turn", 300*time.Millisecond, "about how long a turn takes")
	callers := flags.String("callers", "1,16,64,256", "how many callers store messages, each one after the other")
	_ = flags.Parse(args) // exits on an error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var counts []int
	for text := range strings.SplitSeq(*callers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-callers: %q is no number of callers", text)
		}
		counts = append(counts, n)
	}
	fmt.Printf("%s, %d CPUs, messages a second, median of %d rounds of about %v in turns, and times the first row\n",
		runtime.Version(), runtime.NumCPU(), max(*rounds, 1), *turn)
	for _, synced := range []bool{true, false} {
		if err := compareStores(ctx, synced, counts, max(*rounds, 1), *turn); err != nil {
			return err
		}
	}
	return nil
}

// compareStores prints the table with or without syncs.
func compareStores(ctx context.Context, synced bool, callers []int, rounds int, turn time.Duration) error {
	rates := make([][]float64, len(allStores)*len(callers)) // by store and callers
	for range rounds {
		for i, s := range allStores {
			for j, n := range callers {
				if synced && s.noSync {
					continue
				}
				rate, err := s.fill(ctx, synced, n, turn)
				if err != nil {
					return fmt.Errorf("%s, synced %v: %w", s.name, synced, err)
				}
				rates[i*len(callers)+j] = append(rates[i*len(callers)+j], rate)
			}
		}
	}
	how := "without syncs"
	if synced {
		how = "stored means synced"
	}
	fmt.Printf("\n| %s |", how)
	for _, n := range callers {
		fmt.Printf(" callers: %d |", n)
	}
	fmt.Printf("\n|--|%s\n", strings.Repeat("--|", len(callers)))
	for i, s := range allStores {
		if synced && s.noSync {
			continue
		}
		fmt.Printf("| %s |", s.name)
		for j := range callers {
			rate := quantile(rates[i*len(callers)+j], 0.5)
			fmt.Printf(" %.0f (%.2f) |", rate, rate/quantile(rates[j], 0.5))
		}
		fmt.Println()
	}
	return nil
}
