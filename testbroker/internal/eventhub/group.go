package eventhub

import (
	"slices"
	"sync"
)

// maxReaders is how many readers without an epoch a group may have on a partition.
const maxReaders = 5

// NoEpoch is the epoch of a reader without one.
const NoEpoch = -1

// A Reader reads a partition for a consumer group.
type Reader struct {
	Name  string // as the client calls it; may be empty
	Epoch int64  // NoEpoch = none
	// End is called once, by the goroutine that adds another reader, when that one excludes this one.
	End func(*Error)

	at Address
}

// Groups holds the readers of all consumer groups.
type Groups struct {
	mu      sync.Mutex // guards readers; not held while End is called
	readers map[Address][]*Reader
}

// NewGroups makes groups without readers.
func NewGroups() *Groups { return &Groups{readers: make(map[Address][]*Reader)} }

// Join adds a reader, or refuses it. A reader with an epoch excludes all others that have a lower
// epoch, the same, or none.
func (g *Groups) Join(at Address, r *Reader) *Error {
	r.at = at
	g.mu.Lock()
	present := g.readers[at]
	if err := refusal(present, r); err != nil {
		g.mu.Unlock()
		return err
	}
	if r.Epoch == NoEpoch {
		g.readers[at] = append(present, r)
		g.mu.Unlock()
		return nil
	}
	g.readers[at] = []*Reader{r}
	g.mu.Unlock()
	for _, old := range present {
		old.End(errorf(Stolen, "New receiver '%s' with higher epoch of '%d' is created hence current receiver '%s' with "+
			"epoch '%d' is getting disconnected.", r.Name, r.Epoch, old.Name, old.Epoch))
	}
	return nil
}

// Check returns why a reader cannot join at present.
func (g *Groups) Check(at Address, r *Reader) *Error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return refusal(g.readers[at], r)
}

// refusal returns why a reader cannot join those that are present.
func refusal(present []*Reader, r *Reader) *Error {
	for _, old := range present {
		switch {
		case old.Epoch == NoEpoch:
		case r.Epoch == NoEpoch:
			return errorf(Stolen, "At least one receiver for the endpoint is created with epoch of '%d', and so non-epoch "+
				"receiver is not allowed. Either reconnect with a higher epoch, or make sure all epoch receivers are closed or "+
				"disconnected.", old.Epoch)
		case r.Epoch < old.Epoch:
			return errorf(Stolen, "Receiver '%s' with a higher epoch '%d' already exists. Receiver '%s' with epoch %d cannot "+
				"be created. Make sure you are creating receiver with increasing epoch value to ensure connectivity.", old.Name,
				old.Epoch, r.Name, r.Epoch)
		}
	}
	if r.Epoch == NoEpoch && len(present) >= maxReaders {
		return errorf(TooMany, "Exceeded the maximum number of allowed receivers per partition in a consumer group which is "+
			"%d. Close one of them, use another consumer group, or give the reader an epoch.", maxReaders)
	}
	return nil
}

// Leave removes a reader. It does nothing for a reader that was excluded.
func (g *Groups) Leave(r *Reader) {
	g.mu.Lock()
	defer g.mu.Unlock()
	left := slices.DeleteFunc(g.readers[r.at], func(other *Reader) bool { return other == r })
	if len(left) == 0 {
		delete(g.readers, r.at)
		return
	}
	g.readers[r.at] = left
}
