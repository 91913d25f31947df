package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
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
