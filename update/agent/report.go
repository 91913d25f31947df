package agent

// Report tells the service how an update stands.
type Report struct {
	WorkflowID string
	// Installed is the update that the device has. After a rollback it is the one from before. Zero:
	// not known.
	Installed UpdateID
	Result    Result
	// Steps has one result for each step of the manifest when Result is final. It is nil while the
	// update is in progress, and if the manifest could not be read.
	Steps []Result
}

// Final reports whether this is the last report about the workflow.
func (r *Report) Final() bool { return r.Result.Outcome != OutcomeInProgress }

// Result is the result of an update or of one of its steps.
type Result struct {
	Outcome Outcome
	// Origin says who failed. It is OriginNotApplicable unless Outcome is OutcomeFailed.
	Origin Origin
	// Code is one of the Code constants.
	Code int64
	// Extended has details of failures: the highest 4 bits of each are the Area, the others come from
	// the handler. Empty: none.
	Extended []uint32
	// Details is a text of at most MaxDetails bytes for people.
	Details string
}

// MaxDetails limits Result.Details.
const MaxDetails = 1024

// Codes of results.
const (
	CodeSuccess    int64 = 700
	CodeInProgress int64 = 1
	CodeFailure    int64 = -1 // also when the update was cancelled
)

// Outcome says how an update or a step stands.
type Outcome uint8

// Outcomes. OutcomeInProgress is the only one that is not final.
const (
	OutcomeInProgress Outcome = iota
	OutcomeSucceeded
	OutcomeFailed
	OutcomeCanceled
	OutcomeSkipped // installed already; of a step also: not reached
)

var outcomes = [...]string{"IN_PROGRESS", "SUCCEEDED", "FAILED", "CANCELED", "SKIPPED"}

// String returns the name on the wire, such as "IN_PROGRESS".
func (o Outcome) String() string { return nameIn(outcomes[:], int(o)) }

// Origin says who is the cause of a failure.
type Origin uint8

// Origins.
const (
	OriginNotApplicable   Origin = iota
	OriginCloudService           // the offer is wrong
	OriginManagedResource        // a file or its server is wrong
	OriginAgentCore              // the agent
	OriginAgentExtension         // a handler
	OriginAgentDependency        // what the agent needs, such as its Store
	OriginDevice                 // the device
	OriginOther                  // anything else
)

var origins = [...]string{"NOT_APPLICABLE", "ADU_CLOUD_SERVICE", "ADU_MANAGED_RESOURCE", "AGENT_CORE",
	"AGENT_EXTENSION", "AGENT_DEPENDENCY", "DEVICE", "OTHER"}

// String returns the name on the wire, such as "AGENT_CORE".
func (o Origin) String() string { return nameIn(origins[:], int(o)) }

// Area is the highest 4 bits of an extended code: what failed.
type Area uint32

// Areas.
const (
	AreaManifest Area = 1 // manifest or signature
	AreaDownload Area = 2
	AreaHash     Area = 3
	AreaBackup   Area = 4
	AreaInstall  Area = 5
	AreaApply    Area = 6
	AreaRestore  Area = 7
	AreaState    Area = 8 // the agent's Store
	AreaInternal Area = 15
)

// Code returns the extended code for a handler's own code, of which the lowest 28 bits count.
func (a Area) Code(own uint32) uint32 { return uint32(a)<<28 | own&(1<<28-1) }

func nameIn(names []string, i int) string {
	if i >= len(names) {
		return "unknown"
	}
	return names[i]
}
