package main

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"sync"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/autopaho/queue"
	"github.com/eclipse/paho.golang/autopaho/queue/file"
	"github.com/eclipse/paho.golang/autopaho/queue/memory"
	"github.com/eclipse/paho.golang/packets"
	paho "github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/session/state"
)

// Autopaho is the client of paho.golang that connects again, over MQTT 5. Its Publish waits for the
// acknowledgement, so there is a goroutine for each message in flight.
func Autopaho(p *Peer, l Load) (Sender, error) {
	return openAutopaho(p, l, nil, "")
}

// AutopahoQueue is Autopaho with its queue in memory.
func AutopahoQueue(p *Peer, l Load) (Sender, error) { return openAutopaho(p, l, memory.New(), "") }

// AutopahoFiles is Autopaho with its queue in files, which it does not sync.
func AutopahoFiles(p *Peer, l Load) (Sender, error) {
	folder, err := os.MkdirTemp("", "autopaho")
	if err != nil {
		return nil, err
	}
	q, err := file.New(folder, "", "")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return openAutopaho(p, l, q, folder)
}

type autopahoSender struct {
	client  *autopaho.ConnectionManager
	end     context.CancelFunc
	queued  bool
	message *paho.Publish
	window  int
	acks    *countedAcks
	folder  string // of the queue
}

func openAutopaho(p *Peer, l Load, q queue.Queue, folder string) (Sender, error) {
	s := &autopahoSender{queued: q != nil, window: l.Window, folder: folder,
		message: &paho.Publish{QoS: 1, Topic: brokerTopic, Payload: make([]byte, l.Size)},
		acks:    &countedAcks{SessionManager: state.NewInMemory(), more: make(chan struct{}, 1)}}
	for name, values := range l.properties() {
		if s.message.Properties == nil {
			s.message.Properties = new(paho.PublishProperties)
		}
		s.message.Properties.User.Add(name, values[0])
	}
	client, end, err := connectAutopaho(&p.access, "dev-0", q, s.acks)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	s.client, s.end = client, end
	return s, nil
}

// connectAutopaho returns a client that is connected, and what ends it. acks is nil for the
// library's own session, and q for no queue.
func connectAutopaho(a *access, id string, q queue.Queue, acks *countedAcks) (*autopaho.ConnectionManager,
	context.CancelFunc, error) {
	o := autopaho.ClientConfig{
		ServerUrls: []*url.URL{{Scheme: "mqtt", Host: a.Addr}}, KeepAlive: 60, CleanStartOnInitialConnection: true, Queue: q,
		AttemptConnection: func(ctx context.Context, _ autopaho.ClientConfig, _ *url.URL) (net.Conn, error) {
			c, err := a.dial(ctx)
			if err != nil {
				return nil, err
			}
			return packets.NewThreadSafeConn(c), nil
		},
		ClientConfig: paho.ClientConfig{ClientID: id},
	}
	if acks != nil {
		o.Session = acks
	}
	life, end := context.WithCancel(context.Background())
	c, err := autopaho.NewConnection(life, o)
	if err == nil {
		ctx, cancel := opening()
		defer cancel()
		err = c.AwaitConnection(ctx)
	}
	if err != nil {
		end()
	}
	return c, end, err
}

func (s *autopahoSender) Send(ctx context.Context, n int) error {
	if s.queued {
		return s.enqueue(ctx, n)
	}
	var wait sync.WaitGroup
	failed := make(chan error, s.window)
	for first := range s.window {
		wait.Go(func() {
			for i := first; i < n; i += s.window {
				if _, err := s.client.Publish(ctx, s.message); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(failed)
	return <-failed
}

// enqueue sends n messages through the queue.
func (s *autopahoSender) enqueue(ctx context.Context, n int) error {
	upTo := s.acks.acked.Load() + uint64(n)
	for range n {
		if err := s.client.PublishViaQueue(ctx, &autopaho.QueuePublish{Publish: s.message}); err != nil {
			return err
		}
	}
	return s.acks.wait(ctx, upTo)
}

func (s *autopahoSender) Close() {
	s.end()
	<-s.client.Done()
	_ = os.RemoveAll(s.folder)
}
