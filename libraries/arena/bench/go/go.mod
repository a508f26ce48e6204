module rookery/bench/arena

go 1.25

require (
	github.com/wundergraph/go-arena v1.3.0
	rookery/before-cursor v0.0.0
)

// The newest release before the cursor that the module proxy serves. (The commit right before it, v1.2.0, it answers
// with "not available".) v1.1.0 walks the buffers twice per allocation, v1.2.0 once.
replace rookery/before-cursor => github.com/wundergraph/go-arena v1.1.0
