package updates

import (
	"crypto/sha256"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// A check is a device's question for an update.
type check struct {
	agent      Agent
	hasAgent   bool
	agentETag  string // empty = none
	configETag string // empty = none
	installed  updatedata.UpdateID
}

const (
	maxETag        = 128
	maxProperties  = 5
	maxVersionText = 64
)

// readCheck parses the body of a check.
func readCheck(body []byte, onboarding bool) (c check, bad *Error) {
	o, bad := parse(body)
	if bad != nil {
		return c, bad
	}
	c.hasAgent = o.has("agentInfo")
	info := o.object("agentInfo", !onboarding)
	if c.hasAgent {
		c.agent.SDKVersion = info.text("agentSdkVersion", 1, maxVersionText)
		profile := info.integer("agentProfile")
		if profile < 1 || profile > 1<<31-1 {
			info.failAs(updatedata.CodeUnsupportedProfile, "agentProfile", "is %d; give one from 1 on", profile)
		}
		c.agent.Profile = int(profile)
		c.agent.Properties = info.properties("compatibilityProperties")
	}
	c.agentETag, c.configETag = o.etag("agentInfoEtag"), o.etag("serviceConfigEtag")
	c.installed = o.updateID("installedUpdateId")
	return c, *o.bad
}

// etag returns a member that is an etag; empty if it is absent.
func (o object) etag(name string) string {
	if _, ok := o.tree[name]; !ok {
		return ""
	}
	return o.text(name, 1, maxETag)
}

// properties returns a member that is a set of compatibility properties.
func (o object) properties(name string) map[string]string {
	set := make(map[string]string)
	folded := make(map[string]bool)
	tree, _ := o.tree[name].(document.Tree)
	if n := len(tree); n < 1 || n > maxProperties {
		o.failAs(updatedata.CodeInvalidCompatibility, name, "has %d members, 1 to %d are allowed", n, maxProperties)
	}
	for key, v := range tree {
		text, isText := v.(string)
		if key == "" || !isText || folded[strings.ToLower(key)] {
			o.failAs(updatedata.CodeInvalidCompatibility, name,
				"has the member %q, which is no text or not the only one of its name", key)
		}
		set[key], folded[strings.ToLower(key)] = text, true
	}
	return set
}

// etagOf returns the etag of what a device states of itself.
func etagOf(a Agent) string {
	sum := sha256.Sum256(keep.MustJSON(a))
	return "a-" + encodePart(sum[:12])
}

// checkETag compares the etag of the agent's information with the newest. The device is locked.
func (c *check) checkETag(d *device) *Error {
	switch {
	case c.agentETag == "" && !c.hasAgent:
		return refusef(updatedata.CodeUnknownAgentInfo, "agentInfo", "neither agentInfo nor its etag; send agentInfo")
	case c.agentETag == "" || c.agentETag == d.etag:
		return nil
	case d.etag == "":
		return refusef(updatedata.CodeUnknownAgentInfo, "agentInfoEtag",
			"agentInfoEtag %q is unknown; send agentInfo without it", c.agentETag)
	}
	return refusef(updatedata.CodeOutdatedAgentInfo, "agentInfoEtag",
		"agentInfoEtag %q is outdated; send agentInfo without it", c.agentETag)
}

// An answer is the answer to a check.
type answer struct {
	Config     *serviceConfig `json:"serviceConfiguration,omitempty"`
	ConfigETag string         `json:"serviceConfigEtag"`
	AgentETag  string         `json:"agentInfoEtag"`
	Update     *updateDoc     `json:"updateMetadata,omitempty"`
}

type serviceConfig struct {
	RootKeys string `json:"rootKeyDownloadUrl"`
}

type updateDoc struct {
	WorkflowID string            `json:"workflowId"`
	Manifest   string            `json:"updateManifest"`
	Signature  string            `json:"updateManifestSignature"`
	URLs       map[string]string `json:"fileUrls"`
}

// Check answers a device's question for an update. It returns the body of the answer, and the
// workflow that it offers, if any.
func (s *Service) Check(id string, onboarding bool, body []byte, take Taker) ([]byte, string, *Error) {
	c, bad := readCheck(body, onboarding)
	if bad != nil {
		return nil, "", bad
	}
	a, bad := s.checkIn(id, onboarding, &c)
	if bad != nil {
		return nil, "", bad
	}
	workflow := ""
	if o := s.Offer(id, take); o != nil {
		workflow = o.WorkflowID
		a.Update = &updateDoc{o.WorkflowID, string(o.Manifest), o.Signature, o.URLs}
	}
	s.changed()
	return keep.MustJSON(a), workflow, nil
}

// checkIn records what the device states, and returns the answer without an update.
func (s *Service) checkIn(id string, onboarding bool, c *check) (*answer, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deviceLocked(id)
	if bad := c.checkETag(d); bad != nil {
		return nil, bad
	}
	a := &answer{ConfigETag: s.configETagLocked()}
	if c.configETag != "" && !s.configETags[c.configETag] {
		return nil, refusef(updatedata.CodeOutdatedConfig, "serviceConfigEtag",
			"serviceConfigEtag %q is unknown; ask without it", c.configETag)
	}
	if c.configETag != a.ConfigETag {
		a.Config = &serviceConfig{s.rootKeysURLLocked()}
	}
	s.configETags[a.ConfigETag] = true
	if c.hasAgent {
		d.state(c.agent)
	}
	d.data.Installed = c.installed
	if onboarding {
		d.data.Onboarding++
	} else {
		d.data.Checks++
	}
	a.AgentETag = d.etag
	return a, nil
}

// configETagLocked returns the etag of the present service configuration.
func (s *Service) configETagLocked() string {
	sum := sha256.Sum256([]byte(s.rootKeysURLLocked()))
	return "s-" + encodePart(sum[:12])
}
