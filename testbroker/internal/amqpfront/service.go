package amqpfront

import (
	"strings"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
	"github.com/hubline-iot/hubline/testbroker/internal/notices"
)

// A serviceNode is an address of the hub for back ends. Its links have one direction.
type serviceNode struct {
	kind     fault.LinkKind
	receives bool // the hub receives
	open     func(s serviceEnd) backLink
}

// fileNode opens the link of either name of the file notifications.
var fileNode = noticeNode(notices.FileNotifications)

// serviceNodes maps paths in lower case to their nodes.
var serviceNodes = map[string]serviceNode{
	"messages/devicebound":                          {fault.LinkServiceC2D, true, c2dNode},
	"messages/servicebound/feedback":                {fault.LinkFeedback, false, noticeNode(notices.Feedback)},
	"messages/servicebound/filenotifications":       {fault.LinkFileNotification, false, fileNode},
	"messages/servicebound/fileuploadnotifications": {fault.LinkFileNotification, false, fileNode},
}

// serviceLink opens the links to serviceNodes.
func serviceLink(l *hubLink, path string) (backLink, error) {
	node, ok := serviceNodes[strings.ToLower(strings.TrimSuffix(path, "/"))]
	if !ok {
		return nil, nil
	}
	if node.receives != l.Receives() {
		return nil, wire.Errorf(wire.NotAllowed, "link in the wrong direction for %q", path)
	}
	l.kind = node.kind
	return node.open(serviceEnd{l, strings.ToLower(path)}), nil
}

// A serviceEnd is what all links of back ends to the hub have in common. It ignores everything that
// its kind of link does not handle.
type serviceEnd struct {
	link *hubLink
	path string
}

func (s serviceEnd) resource() string { return s.path }

func (s serviceEnd) permit() error {
	l := s.link
	if err := l.conn.allowed(s.path, hubdata.RightServiceConnect); err != nil {
		l.conn.refusedLink(l.Link, l.id, err)
		return wire.Errorf(wire.UnauthorizedAccess, "401003 IotHubUnauthorized: %v", err)
	}
	return nil
}

func (serviceEnd) attached()                   {}
func (serviceEnd) credit()                     {}
func (serviceEnd) message(amqp.Delivery) error { return nil }
func (serviceEnd) detached()                   {}

func (serviceEnd) settled(_ []byte, state wire.DeliveryState) wire.DeliveryState { return state }
