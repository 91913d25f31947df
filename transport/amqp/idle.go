package amqp

import (
	"sync"
	"time"
)

// idleLinks are the telemetry links of a connection without a goroutine. The library does not
// report the loss of a sending link before a send, so one timer probes all of them every
// probeInterval. A thousand idle devices need neither goroutines nor timers.
type idleLinks struct {
	mu     sync.Mutex // guards the fields below; never held during I/O
	links  map[*outLink]struct{}
	timer  *time.Timer // runs while there are any; nil before the first
	closed bool
	probes sync.WaitGroup
}

// add makes a link probed until it is removed.
func (i *idleLinks) add(l *outLink) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return
	}
	if i.links == nil {
		i.links = make(map[*outLink]struct{})
	}
	i.links[l] = struct{}{}
	switch {
	case len(i.links) > 1:
	case i.timer == nil:
		i.timer = time.AfterFunc(probeInterval, i.probe)
	default:
		i.timer.Reset(probeInterval)
	}
}

// remove removes a link. A probe of it may still be running.
func (i *idleLinks) remove(l *outLink) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.links, l)
	if len(i.links) == 0 && i.timer != nil {
		i.timer.Stop()
	}
}

// probe probes all links. It is called by the timer.
func (i *idleLinks) probe() {
	i.mu.Lock()
	if i.closed || len(i.links) == 0 {
		i.mu.Unlock()
		return
	}
	i.probes.Add(1)
	defer i.probes.Done()
	links := make([]*outLink, 0, len(i.links))
	for l := range i.links {
		links = append(links, l)
	}
	i.timer.Reset(probeInterval)
	i.mu.Unlock()
	for _, l := range links {
		if err := probeLink(l.sender); err != nil {
			i.remove(l)
			l.s.telemetry.idleLinkLost(l, err)
		}
	}
}

// stop ends the probes, and waits for one that is running.
func (i *idleLinks) stop() {
	i.mu.Lock()
	i.closed = true
	if i.timer != nil {
		i.timer.Stop()
	}
	i.mu.Unlock()
	i.probes.Wait()
}
