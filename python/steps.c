/* steps.c: stage, launch and step of figraph.h as functions of Python's own.
 *
 * A list of lengths is read as it is, and nothing is allocated: ctypes takes longer to make one of
 * these calls than the call itself takes. No header of Python's is needed to build this: what it
 * names is in Python's stable ABI and is found in the process that loads it. The library's calls
 * come by address, since a process may have loaded two libraries of that name. Invariant: other
 * threads of Python run until a call returns. */
#include <figraph.h>
#include <stddef.h>

/* ---- Of Python's stable ABI ---------------------------------------------------------------- */

typedef struct python_object PyObject;
typedef PyObject *python_function(PyObject *self, PyObject *const *args, ptrdiff_t count);
typedef struct python_method {
    const char *name;
    python_function *function;
    int flags;
    const char *doc;
} python_method;
enum { METH_FASTCALL = 0x80 };

extern PyObject *PyExc_OverflowError;
PyObject *PyCFunction_NewEx(python_method *method, PyObject *self, PyObject *module);
PyObject *PyErr_Occurred(void);
void PyErr_SetString(PyObject *type, const char *text);
PyObject *PyList_GetItem(PyObject *list, ptrdiff_t index);
ptrdiff_t PyList_Size(PyObject *list);
void *PyLong_AsVoidPtr(PyObject *number);
PyObject *PyLong_FromLong(long value);
ptrdiff_t PyNumber_AsSsize_t(PyObject *number, PyObject *overflow);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *thread);

/* ---- Calls --------------------------------------------------------------------------------- */

typedef fig_status call(fig_engine *engine, const fig_step *step);

/* Of an engine, as steps.py fills it in; self is its address, as a number. */
typedef struct fig_steps {
    call *stage, *step;
    fig_status (*launch)(fig_engine *engine);
    fig_engine *engine; /* NULL: it is closed */
    fig_step *next;
    int32_t *lengths; /* [length_limit], which the step reads */
    int32_t length_limit;
} fig_steps;

static int read_number(PyObject *number, int32_t *value) {
    const ptrdiff_t given = PyNumber_AsSsize_t(number, PyExc_OverflowError);
    *value = (int32_t)given;
    if (given == -1 && PyErr_Occurred() != NULL) return 1;
    if (given == *value) return 0;
    PyErr_SetString(PyExc_OverflowError, "a length or a bucket does not fit into 32 bits");
    return 1;
}

/* A list longer than the limit stays unread: the library refuses so many rows first. */
static int read_lengths(fig_steps *of, PyObject *list) {
    const ptrdiff_t count = PyList_Size(list);
    const int32_t rows = count <= of->length_limit ? (int32_t)count : 0;
    if (count < 0) return 1;
    for (int32_t row = 0; row < rows; row++)
        if (read_number(PyList_GetItem(list, row), &of->lengths[row]) != 0) return 1;
    of->next->rows = count <= INT32_MAX ? (int32_t)count : INT32_MAX;
    return 0;
}

/* args: a bucket, and a list of lengths where the step does not have them. 1: Python has the error
 * of what cannot be read. */
static int read_step(fig_steps *of, PyObject *const *args, ptrdiff_t count) {
    if (read_number(args[0], &of->next->bucket) != 0) return 1;
    return count > 1 && read_lengths(of, args[1]) != 0;
}

/* function: NULL: launch, which reads no step. */
static PyObject *make(const fig_steps *of, call *function) {
    fig_status status = FIG_ORDER;
    if (of->engine != NULL) {
        void *thread = PyEval_SaveThread();
        status = function != NULL ? function(of->engine, of->next) : of->launch(of->engine);
        PyEval_RestoreThread(thread);
    }
    return PyLong_FromLong((long)status);
}

static PyObject *stage(PyObject *self, PyObject *const *args, ptrdiff_t count) {
    fig_steps *of = PyLong_AsVoidPtr(self);
    return read_step(of, args, count) == 0 ? make(of, of->stage) : NULL;
}

static PyObject *launch(PyObject *self, PyObject *const *args, ptrdiff_t count) {
    (void)args;
    (void)count;
    return make(PyLong_AsVoidPtr(self), NULL);
}

static PyObject *step(PyObject *self, PyObject *const *args, ptrdiff_t count) {
    fig_steps *of = PyLong_AsVoidPtr(self);
    return read_step(of, args, count) == 0 ? make(of, of->step) : NULL;
}

/* A function of Python's; each returns a fig_status. */
FIG_API PyObject *fig_steps_function(int32_t which, PyObject *self);
PyObject *fig_steps_function(int32_t which, PyObject *self) {
    static python_method methods[] = {{"stage", stage, METH_FASTCALL, NULL},
                                      {"launch", launch, METH_FASTCALL, NULL},
                                      {"step", step, METH_FASTCALL, NULL}};
    return PyCFunction_NewEx(&methods[which], self, NULL);
}
