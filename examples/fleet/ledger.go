package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/hubline-iot/hubline/device"
)

// counts are the line of JSON at the end.
type counts struct {
	First        int `json:"first"`
	Count        int `json:"count"`
	Sent         int `json:"sent"` // messages that entered a queue
	Acknowledged int `json:"acknowledged"`
	Failed       int `json:"failed"`
	// Stopped counts the devices whose client gave up or was not closed in order.
	Stopped    int    `json:"stopped"`
	Attempts   uint64 `json:"attempts"` // to connect
	Reconnects uint64 `json:"reconnects"`
	// Cuts are connections that -cut has ended.
	Cuts int64 `json:"cuts,omitempty"`
	// LongestOutage is the longest time that a device was without connection, in seconds.
	LongestOutage float64 `json:"longestOutage"`
}

// ledger has the results of all devices of the process.
type ledger struct {
	mu     sync.Mutex // guards the fields below
	counts counts
	err    error          // the first one of a message or a device
	file   io.WriteCloser // nil: there is none
	ids    *bufio.Writer  // writes to file; keeps its first error
}

// openLedger returns an empty ledger that adds the ids of acknowledged messages to a file, if it
// has a name. The file keeps the ids of earlier runs, whose messages the hub has, too.
func openLedger(name string, of devices) (*ledger, error) {
	l := &ledger{counts: counts{First: of.first, Count: of.count}, ids: bufio.NewWriter(io.Discard)}
	if name == "" {
		return l, nil
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("flag -ledger: %w; give a file in a directory that can be written", err)
	}
	l.file, l.ids = file, bufio.NewWriter(file)
	return l, nil
}

// settled enters the result of a message.
func (l *ledger) settled(id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Sent++
	if err != nil {
		l.counts.Failed++
		l.keepLocked(err)
		return
	}
	l.counts.Acknowledged++
	if l.ids.Available() <= len(id) {
		l.ids.Flush() // whole lines only, so that a process that is killed leaves no part of an id
	}
	l.ids.WriteString(id)
	l.ids.WriteByte('\n')
}

// ended enters the counts of a device, and why it stopped early; nil: it did not.
func (l *ledger) ended(s device.Stats, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Attempts += s.Attempts
	l.counts.Reconnects += max(1, s.Connections) - 1
	l.counts.LongestOutage = max(l.counts.LongestOutage, s.LongestOutage.Seconds())
	if err != nil {
		l.counts.Stopped++
		l.keepLocked(err)
	}
}

// cut enters the number of connections that -cut has ended.
func (l *ledger) cut(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Cuts = n
}

func (l *ledger) keepLocked(err error) {
	if l.err == nil {
		l.err = err
	}
}

// close prints the counts and closes the file. It returns an error if a message was not
// acknowledged or a device stopped early.
func (l *ledger) close(out io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.ids.Flush()
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
	}
	err = errors.Join(err, json.NewEncoder(out).Encode(l.counts))
	if l.err != nil {
		err = errors.Join(fmt.Errorf("%d messages failed, %d devices stopped; the first error: %w", l.counts.Failed,
			l.counts.Stopped, l.err), err)
	}
	return err
}
