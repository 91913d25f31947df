package amqp

import (
	"sync"
	"time"
)

// idleLinks are the telemetry links of a connection without a goroutine. The library does not
// report the loss of a sending link before something is sent, so they are probed every
// probeInterval, all of them by one timer: a thousand idle devices need neither goroutines nor
// timers for it.
type idleLinks struct {
	mu     sync.Mutex // guards what follows; held for memory only
	links  map[*outLink]struct{}
	timer  *time.Timer // runs while there are any; nil before the first
	closed bool
	probes sync.WaitGroup
}

// add has a link probed until it is removed.
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

// remove removes a link. A probe may still be under way.
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

// stop ends the probes, and waits for one that is under way.
func (i *idleLinks) stop() {
	i.mu.Lock()
	i.closed = true
	if i.timer != nil {
		i.timer.Stop()
	}
	i.mu.Unlock()
	i.probes.Wait()
}
