// The tables' rows: one struct a table, one field a column. docs/reference/tables.md describes them; a test compares both.

package tables

// Every table has the column recording. It is the same for every export of one recording and different for any other,
// so files of many recordings form one data set: join tables by recording and id. Ids are unique within a recording;
// 0 means unknown or none. Columns ts and those that end in _at are UTC, with nanoseconds; columns that end in _ns are nanoseconds.

type recordingRow struct {
	Recording       string   `parquet:"recording,dict"`
	Host            string   `parquet:"host,dict"`
	Kernel          string   `parquet:"kernel,dict"`
	Arch            string   `parquet:"arch,dict"`
	CPUs            int32    `parquet:"cpus"`
	Command         []string `parquet:"command,list"`
	Program         string   `parquet:"program,dict"`  // base name of the command
	BuildID         string   `parquet:"build_id,dict"` // of the program
	Version         string   `parquet:"version,dict"`  // of the hbtrace that recorded
	StartedAt       int64    `parquet:"started_at,timestamp(nanosecond)"`
	DurationNs      int64    `parquet:"duration_ns"`
	ExitStatus      int32    `parquet:"exit_status"` // -1 unknown
	ExitSignal      int32    `parquet:"exit_signal"`
	FreqHz          int32    `parquet:"freq_hz"`
	AllocPeriod     int64    `parquet:"alloc_period_bytes"`
	CallThresholdNs int64    `parquet:"call_threshold_ns"`
	LockThresholdNs int64    `parquet:"lock_threshold_ns"`
	CPUNs           int64    `parquet:"cpu_ns"` // of the recorded command and of the children that it waited for
	CollectorNs     int64    `parquet:"collector_cpu_ns"`
	SamplerNs       int64    `parquet:"sampler_cpu_ns"`
	AgentNs         int64    `parquet:"agent_cpu_ns"` // in the program, a part of cpu_ns
	Events          int64    `parquet:"events"`
	Lost            int64    `parquet:"lost_records"`
	Overwritten     int64    `parquet:"overwritten_events"`
	Complete        bool     `parquet:"complete"`
	Notes           []string `parquet:"notes,list"`
}

type processRow struct {
	Recording string   `parquet:"recording,dict"`
	Process   int32    `parquet:"process"`
	Parent    int32    `parquet:"parent"`
	PID       int32    `parquet:"pid"`
	PPID      int32    `parquet:"ppid"`
	Exe       string   `parquet:"exe,dict"`
	Cmdline   []string `parquet:"cmdline,list"`
	StartedAt int64    `parquet:"started_at,timestamp(nanosecond)"`
	EndedAt   *int64   `parquet:"ended_at,optional,timestamp(nanosecond)"` // null: still running when the recording ended
	Forked    bool     `parquet:"forked"`
	Lost      int64    `parquet:"lost_records"`
	Disabled  string   `parquet:"disabled,dict"` // why the agent stopped recording; "" it did not
}

type threadRow struct {
	Recording    string `parquet:"recording,dict"`
	Thread       int64  `parquet:"thread"`
	Process      int32  `parquet:"process"`
	Parent       int64  `parquet:"parent"`
	TID          int32  `parquet:"tid"`
	Name         string `parquet:"name,dict"`
	StartedAt    int64  `parquet:"started_at,timestamp(nanosecond)"`
	EndedAt      *int64 `parquet:"ended_at,optional,timestamp(nanosecond)"`
	Main         bool   `parquet:"main"`
	CPUNs        *int64 `parquet:"cpu_ns,optional"` // null: not known
	Calls        int64  `parquet:"calls"`
	Waits        int64  `parquet:"waits"`
	WaitNs       int64  `parquet:"wait_ns"`
	AllocObjects int64  `parquet:"alloc_objects"`
	AllocBytes   int64  `parquet:"alloc_bytes"`
	FreeObjects  int64  `parquet:"free_objects"`
	Lost         int64  `parquet:"lost_records"`
}

type functionRow struct {
	Recording string `parquet:"recording,dict"`
	Function  int32  `parquet:"function"`
	Name      string `parquet:"name"`
	Linkage   string `parquet:"linkage"` // as in the symbol table
	File      string `parquet:"file,dict"`
	Module    string `parquet:"module,dict"` // path
	BuildID   string `parquet:"build_id,dict"`
	Known     bool   `parquet:"symbolised"`
}

type frameRow struct {
	Recording string `parquet:"recording,dict"`
	Frame     int32  `parquet:"frame"`
	Function  int32  `parquet:"function"`
	Line      int32  `parquet:"line"`
	Address   uint64 `parquet:"address"` // ELF virtual address of the instruction in the function's module
	Inlined   bool   `parquet:"inlined"` // into the next frame of the stack
}

type stackRow struct {
	Recording string  `parquet:"recording,dict"`
	Stack     int32   `parquet:"stack"`
	Leaf      int32   `parquet:"leaf"`      // function
	Call      string  `parquet:"call,dict"` // wrapped function that the leaf called; "" none
	Place     string  `parquet:"place"`     // first function of the program, from the leaf
	Frames    []int32 `parquet:"frames,list"`
	Functions []int32 `parquet:"functions,list"` // of frames, leaf first
}

// profileRow is a row of the profile: what hbtrace export --pprof writes as a sample.
type profileRow struct {
	Recording    string `parquet:"recording,dict"`
	Process      int32  `parquet:"process"`
	Thread       int64  `parquet:"thread"`
	Kind         string `parquet:"kind,dict"` // cpu, tail, wait, call, alloc
	Stack        int32  `parquet:"stack"`
	Object       uint64 `parquet:"object"` // address waited for
	Samples      int64  `parquet:"samples"`
	CPUNs        int64  `parquet:"cpu_ns"`
	BlockedNs    int64  `parquet:"blocked_ns"`
	Contentions  int64  `parquet:"contentions"`
	DelayNs      int64  `parquet:"delay_ns"`
	AllocObjects int64  `parquet:"alloc_objects"`
	AllocBytes   int64  `parquet:"alloc_bytes"`
	InuseObjects int64  `parquet:"inuse_objects"`
	InuseBytes   int64  `parquet:"inuse_bytes"`
}

type eventRow struct {
	Recording string `parquet:"recording,dict"`
	At        int64  `parquet:"ts,timestamp(nanosecond)"` // of intervals and merged runs the end
	SinceNs   int64  `parquet:"ns"`                       // how long it took; 0 for a moment
	Kind      string `parquet:"kind,dict"`
	Thread    int64  `parquet:"thread"`
	Stack     int32  `parquet:"stack"`
	Count     int32  `parquet:"count"`
	CPUNs     int64  `parquet:"cpu_ns"`
	Object    uint64 `parquet:"object"`
	Size      uint64 `parquet:"size"`
	Weight    uint64 `parquet:"weight"`
	DebtNs    int64  `parquet:"debt_ns"`
	Result    int64  `parquet:"result"`
	Flags     int32  `parquet:"flags"`
}

type waitRow struct {
	Recording   string  `parquet:"recording,dict"`
	At          int64   `parquet:"ts,timestamp(nanosecond)"` // the end
	Ns          int64   `parquet:"ns"`
	Process     int32   `parquet:"process"`
	Thread      int64   `parquet:"thread"`
	State       string  `parquet:"state,dict"` // lock, signal, io, poll, process, sleep
	Kind        string  `parquet:"kind,dict"`  // of the object: mutex, condvar, …; "" for calls
	Call        string  `parquet:"call,dict"`
	Object      uint64  `parquet:"object"` // address or descriptor
	Stack       int32   `parquet:"stack"`
	Owner       int64   `parquet:"owner"`       // thread that held the object when the wait began
	Releaser    int64   `parquet:"releaser"`    // thread that released it last before the wait ended
	Probability float64 `parquet:"probability"` // that it was this releaser; 0 without one
	Certain     bool    `parquet:"certain"`
	TimedOut    bool    `parquet:"timed_out"`
	Open        bool    `parquet:"open"` // had not ended when the recording did
	Result      int64   `parquet:"result"`
}

type doingRow struct {
	Act  string `parquet:"act,dict"`
	What string `parquet:"what,dict"`
	Ns   int64  `parquet:"ns"`
}

type edgeRow struct {
	Recording     string     `parquet:"recording,dict"`
	Process       int32      `parquet:"process"`
	Kind          string     `parquet:"kind,dict"`
	Call          string     `parquet:"call,dict"`
	Object        uint64     `parquet:"object"`
	ObjectName    string     `parquet:"object_name,dict"`
	Lock          bool       `parquet:"lock"`
	Waiter        int64      `parquet:"waiter"`
	Owner         int64      `parquet:"owner"`
	Releaser      int64      `parquet:"releaser"`
	WaiterStack   int32      `parquet:"waiter_stack"`
	OwnerStack    int32      `parquet:"owner_stack"` // where it had taken the object
	ReleaserStack int32      `parquet:"releaser_stack"`
	Count         int64      `parquet:"count"`
	Certain       int64      `parquet:"certain"`
	Expected      float64    `parquet:"expected"`
	TotalNs       int64      `parquet:"total_ns"`
	MaxNs         int64      `parquet:"max_ns"`
	TimedOut      int64      `parquet:"timed_out"`
	Open          int64      `parquet:"open"`
	Doing         []doingRow `parquet:"owner_doing,list"`
}

type linkRow struct {
	Thread     int64  `parquet:"thread"`
	Stack      int32  `parquet:"stack"`
	Function   string `parquet:"function,dict"`
	Kind       string `parquet:"kind,dict"`
	Object     uint64 `parquet:"object"`
	ObjectName string `parquet:"object_name,dict"`
}

type chainRow struct {
	Recording   string    `parquet:"recording,dict"`
	Chain       int32     `parquet:"chain"`
	Lock        bool      `parquet:"lock"` // the first wait was for a lock
	Count       int64     `parquet:"count"`
	TotalNs     int64     `parquet:"total_ns"`
	MaxNs       int64     `parquet:"max_ns"`
	End         string    `parquet:"end_act,dict"`
	EndThread   int64     `parquet:"end_thread"`
	EndStack    int32     `parquet:"end_stack"`
	EndFunction string    `parquet:"end_function,dict"`
	Links       []linkRow `parquet:"links,list"`
}
