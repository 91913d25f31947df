package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/atomicfile"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/twin"
)

// program is one run of the device's program.
type program struct {
	client  *device.Client
	binding *twin.Binding[settings]
	log     *slog.Logger
	level   slog.LevelVar
	changed chan struct{} // capacity 1: the interval may have changed
	file    atomicfile.JSON[settings]
}

// maxFile is the most that is read of the file.
const maxFile = 64 << 10

// start starts the program with the settings in the file, the default ones if there is none.
func start(creds *transport.Credentials, over transport.Transport, path string) (*program, error) {
	p := &program{changed: make(chan struct{}, 1), file: atomicfile.JSON[settings]{Path: path, Limit: maxFile,
		Damaged: errors.New(path + " has no settings; remove it")}}
	p.log = slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: &p.level, ReplaceAttr: withoutTime}))
	saved, err := p.file.Load()
	if err != nil {
		return nil, err
	}
	begin := usual()
	if saved != nil {
		begin = *saved
	}
	if err := check(begin); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p.client, err = device.New(creds, over, &device.Options{OnStatus: func(s device.Status) {
		p.log.Info("connection", "state", s.State, "reason", s.Reason)
	}})
	if err != nil {
		return nil, err
	}
	err = p.use(begin)
	if err == nil {
		p.binding, err = twin.Bind(p.client, &twin.Options[settings]{Default: usual(), Start: &begin, Check: check,
			Apply: p.apply, OnError: func(err error) { p.log.Warn("settings", "error", err) }})
	}
	if err == nil {
		err = p.client.Start()
	}
	if err != nil {
		return nil, errors.Join(err, p.client.Close())
	}
	return p, nil
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// apply saves a change first: if the disk fails, the change is refused, and nothing has changed.
func (p *program) apply(_ context.Context, c twin.Change[settings]) error {
	if err := p.file.Save(&c.New); err != nil {
		return err
	}
	p.log.Info("settings", "version", c.Version, "changed", c.Fields, "interval", c.New.Interval,
		"retry", c.New.Retry.Name, "level", c.New.Level)
	return p.use(c.New)
}

// use puts settings that have passed check in force.
func (p *program) use(s settings) error {
	l, err := level(s.Level)
	if err != nil {
		return err
	}
	p.level.Set(l)
	select {
	case p.changed <- struct{}{}:
	default: // the loop has not read the last change yet
	}
	return p.client.SetRetryPolicy(policies[s.Retry.Name](s.Retry))
}

// run sends readings until ctx ends. A new interval counts from the last reading on.
func (p *program) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for last, n := time.Now(), 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
			timer.Reset(time.Until(last.Add(seconds(p.binding.Value().Interval))))
		case <-timer.C:
			n++
			err := p.client.Enqueue(ctx, &transport.Message{Body: fmt.Appendf(nil, `{"reading":%d}`, n)}, nil)
			p.log.Debug("sent", "reading", n, "error", err)
			last = time.Now()
			timer.Reset(seconds(p.binding.Value().Interval))
		}
	}
}

func (p *program) close() error {
	p.binding.Close()
	return p.client.Close()
}
