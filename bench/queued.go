package main

import (
	"context"
	"errors"
	"os"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/outbox"
)

// OverOutbox is OverMQTTWithIDs with an outbox in files that are not synced, as those of autopaho.
func OverOutbox(p *Peer, l Load) (Sender, error) {
	sender, err := OverMQTTWithIDs(p, Load{Window: l.Window, Size: l.Size, Properties: l.Properties})
	if err != nil {
		return nil, err
	}
	s := &outboxSender{hublineSender: sender.(*hublineSender), ended: make(chan error, 1)}
	if s.folder, err = os.MkdirTemp("", "outbox"); err == nil {
		s.queue, err = outbox.Open(s.folder, &outbox.Options{SyncEvery: -1, Overflow: device.OverflowBlock})
	}
	if err != nil {
		sender.Close()
		return nil, errors.Join(err, os.RemoveAll(s.folder))
	}
	run, end := context.WithCancel(context.Background())
	s.end = end
	go func() { s.ended <- s.queue.Run(run, s.client) }() // ends with Close
	return s, nil
}

type outboxSender struct {
	*hublineSender
	queue  *outbox.Queue
	folder string
	end    context.CancelFunc
	ended  chan error
}

func (s *outboxSender) Send(ctx context.Context, n int) error {
	for range n {
		if err := s.queue.Put(ctx, s.message); err != nil {
			return err
		}
	}
	return s.queue.Flush(ctx)
}

func (s *outboxSender) Close() {
	s.end()
	<-s.ended
	_ = s.queue.Close()
	s.hublineSender.Close()
	_ = os.RemoveAll(s.folder)
}
