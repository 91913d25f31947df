package main

import (
	"fmt"
	"strings"
)

// ledger compares what devices sent with what the hubs have.
type ledger struct {
	name                        string
	sent, atA, atB, lost, twice int
	requests, beyond            int // to the service; those that a registration does not need
}

// account counts the messages with the ids in sent, and the requests of registration ids that begin
// with name. A registration needs two: register, and one poll.
func (c *cloud) account(name string, sent []string, registrations int) ledger {
	l := count(name, sent, c.messageIDs(hubA), c.messageIDs(hubB))
	for _, r := range c.service.Requests() {
		if strings.HasPrefix(r.RegistrationID, name) {
			l.requests++
		}
	}
	l.beyond = l.requests - 2*registrations
	return l
}

func (c *cloud) messageIDs(hub string) (ids []string) {
	for _, m := range c.hubs[hub].Messages() {
		ids = append(ids, m.MessageID)
	}
	return ids
}

func count(name string, sent, atA, atB []string) ledger {
	l := ledger{name: name, sent: len(sent)}
	a, b := map[string]int{}, map[string]int{}
	for _, id := range atA {
		a[id]++
	}
	for _, id := range atB {
		b[id]++
	}
	for _, id := range sent {
		l.atA += a[id]
		l.atB += b[id]
		switch copies := a[id] + b[id]; copies {
		case 0:
			l.lost++
		default:
			l.twice += copies - 1
		}
	}
	return l
}

// print returns an error if messages were lost. A message may arrive twice: the hub had it, and the
// connection ended before the acknowledgement.
func (l ledger) print() error {
	fmt.Printf("%-9s %7d %7d %7d %7d %7d   %d, %d\n", l.name, l.sent, l.atA, l.atB, l.lost, l.twice, l.requests, l.beyond)
	if l.lost > 0 {
		return fmt.Errorf("%s: %d messages were lost", l.name, l.lost)
	}
	return nil
}
