/* Four ways to call the handler. Only the first two and R_tryCatchError survive an error in it. */
#include "bare_epoll.h"

static SEXP trampoline_call; /* .Call(<address of bare_trampoline>) */
/* tryCatch(evalq(.Call(<address>), <env>), error = identity, interrupt = identity) */
static SEXP evalq_call;
static SEXP unwind_token;

static SEXP (*pending_work)(void *);
static void *pending_data;
static SEXP pending_condition;

static SEXP keep_condition(SEXP condition, void *data) {
    (void)data;
    R_PreserveObject(condition);
    pending_condition = condition;
    return R_NilValue; /* a calling handler that returns: the error continues to R_tryEvalSilent */
}

static SEXP run_pending(void *data) {
    (void)data;
    return pending_work(pending_data);
}

SEXP bare_trampoline(void) {
    return R_withCallingErrorHandler(run_pending, NULL, keep_condition, NULL);
}

SEXP bare_plain(void) {
    return run_pending(NULL);
}

static SEXP native_call(DL_FUNC function) {
    SEXP address = PROTECT(R_MakeExternalPtrFn(function, Rf_install("native symbol"), R_NilValue));
    SEXP call = Rf_lang2(Rf_findFun(Rf_install(".Call"), R_BaseEnv), address);
    R_PreserveObject(call);
    UNPROTECT(1);
    return call;
}

void call_init(void) {
    trampoline_call = native_call((DL_FUNC)bare_trampoline);
    SEXP plain = native_call((DL_FUNC)bare_plain);
    SEXP identity = Rf_findFun(Rf_install("identity"), R_BaseEnv);
    SEXP inner = PROTECT(Rf_lang3(Rf_install("evalq"), plain, R_GlobalEnv));
    evalq_call = Rf_lang4(Rf_install("tryCatch"), inner, identity, identity);
    R_PreserveObject(evalq_call);
    SET_TAG(CDDR(evalq_call), Rf_install("error"));
    SET_TAG(CDR(CDDR(evalq_call)), Rf_install("interrupt"));
    UNPROTECT(1);
    unwind_token = R_MakeUnwindCont();
    R_PreserveObject(unwind_token);
}

static SEXP on_error(SEXP condition, void *data) {
    (void)data;
    R_PreserveObject(condition);
    pending_condition = condition;
    return R_NilValue;
}

static void on_jump(void *data, Rboolean jump) {
    (void)data;
    (void)jump;
}

static SEXP hidden_option = NULL;

static void set_error_option(SEXP value) {
    SEXP quoted = PROTECT(Rf_lang2(Rf_install("quote"), value));
    SEXP call = PROTECT(Rf_lang2(Rf_install("options"), quoted));
    SET_TAG(CDR(call), Rf_install("error"));
    Rf_eval(call, R_BaseEnv);
    UNPROTECT(2);
}

/* R_tryEval, unlike tryCatch, would run options(error = ) for each caught error, so the option is
 * unset for the duration of a batch of calls. */
void call_batch_begin(void) {
    SEXP option = Rf_GetOption1(Rf_install("error"));
    if (option != R_NilValue) {
        R_PreserveObject(option);
        hidden_option = option;
        set_error_option(R_NilValue);
    }
}

void call_batch_end(void) {
    if (hidden_option != NULL) {
        set_error_option(hidden_option);
        R_ReleaseObject(hidden_option);
        hidden_option = NULL;
    }
}

bool call_protected(enum call_shape shape, SEXP (*work)(void *), void *data, SEXP *condition) {
    int failed = 0;
    pending_work = work;
    pending_data = data;
    pending_condition = R_NilValue;
    switch (shape) {
    case CALL_TRAMPOLINE:
        R_tryEvalSilent(trampoline_call, R_GlobalEnv, &failed);
        break;
    case CALL_EVALQ: {
        SEXP result = PROTECT(Rf_eval(evalq_call, R_GlobalEnv));
        if (Rf_inherits(result, "error") || Rf_inherits(result, "interrupt")) {
            keep_condition(result, NULL);
            failed = 1;
        }
        UNPROTECT(1);
        break;
    }
    case CALL_TRY_CATCH:
        R_tryCatchError(run_pending, NULL, on_error, NULL);
        failed = pending_condition != R_NilValue;
        break;
    case CALL_UNWIND:
        R_UnwindProtect(run_pending, NULL, on_jump, NULL, unwind_token);
        break;
    }
    if (failed != 0 && pending_condition != R_NilValue) {
        R_ReleaseObject(pending_condition);
    }
    *condition = pending_condition;
    return failed == 0;
}
