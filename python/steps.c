/* steps.c: makes stage, launch and step of figraph.h native Python functions.
 *
 * A call through ctypes takes longer than the engine's own work, so these functions read a Python
 * list of lengths directly and allocate nothing. The build needs no Python header: all names used
 * here are in Python's stable ABI, and the process that loads this library resolves them. The
 * engine's functions are passed by address, since a process may have loaded two libraries of that
 * name. Invariant: a call releases the GIL until it returns. */
#include <figraph.h>
#include <stddef.h>

/* ---- Python's stable ABI ------------------------------------------------------------------- */

typedef struct python_object PyObject;
typedef PyObject *python_function(PyObject *self, PyObject *const *args, ptrdiff_t count);
typedef struct python_method {
    const char *name;
    python_function *function;
    int flags;
    const char *doc;
} python_method;
enum { METH_FASTCALL = 0x80 };

extern PyObject *PyExc_OverflowError, *PyExc_TypeError;
/* Python's True and False. Only their addresses are used; their size is private to Python. */
extern char _Py_TrueStruct[], _Py_FalseStruct[];
PyObject *PyCFunction_NewEx(python_method *method, PyObject *self, PyObject *module);
void PyErr_Clear(void);
PyObject *PyErr_Format(PyObject *type, const char *format, ...);
PyObject *PyErr_Occurred(void);
PyObject *PyList_GetItem(PyObject *list, ptrdiff_t index);
ptrdiff_t PyList_Size(PyObject *list);
void *PyLong_AsVoidPtr(PyObject *number);
PyObject *PyLong_FromLong(long value);
ptrdiff_t PyNumber_AsSsize_t(PyObject *number, PyObject *overflow);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *thread);

/* ---- Calls --------------------------------------------------------------------------------- */

typedef fig_status call(fig_engine *engine, const fig_step *step);

/* The calls of one engine. steps.py fills it in and passes its address to each function as the
 * number `self`. */
typedef struct fig_steps {
    call *stage, *step;
    fig_status (*launch)(fig_engine *engine);
    fig_engine *engine; /* NULL: the engine is closed */
    fig_step *next;
    int32_t *lengths; /* [length_limit], the array that the step reads */
    int32_t length_limit;
} fig_steps;

static int is_truth(const PyObject *object) {
    const char *at = (const char *)object;
    return at == _Py_TrueStruct || at == _Py_FalseStruct;
}

/* The result of reading a number. */
typedef enum reading { READ, NO_INTEGER, TOO_WIDE } reading;

/* Python clamps an integer that does not fit ptrdiff_t; the clamped value does not fit int32
 * either. */
static reading read_number(PyObject *number, int32_t *value) {
    if (is_truth(number)) return NO_INTEGER;
    const ptrdiff_t given = PyNumber_AsSsize_t(number, NULL);
    *value = (int32_t)given;
    if (given == -1 && PyErr_Occurred() != NULL) return NO_INTEGER;
    return given == *value ? READ : TOO_WIDE;
}

/* Refuses a length. Gets the number from the list again, since reading it may have run Python code
 * that changed the list. */
static int refuse_length(reading wrong, PyObject *list, ptrdiff_t row) {
    PyErr_Clear();
    PyObject *number = PyList_GetItem(list, row);
    if (number == NULL) return 1;
    if (wrong == NO_INTEGER)
        PyErr_Format(PyExc_TypeError, "kv_lengths[%zd] is %R, it must be an integer", row, number);
    else
        PyErr_Format(PyExc_OverflowError, "kv_lengths[%zd] is %S, it must be from %d to %d", row,
                     number, INT32_MIN, INT32_MAX);
    return 1;
}

static int refuse_bucket(reading wrong, PyObject *number) {
    PyErr_Clear();
    if (wrong == NO_INTEGER)
        PyErr_Format(PyExc_TypeError, "bucket is %R, it must be an integer", number);
    else
        PyErr_Format(PyExc_OverflowError, "bucket is %S, it must be from %d to %d", number,
                     INT32_MIN, INT32_MAX);
    return 1;
}

/* A list longer than the limit is not read: the library refuses its number of rows first. */
static int read_lengths(fig_steps *of, PyObject *list) {
    const ptrdiff_t count = PyList_Size(list);
    const int32_t rows = count <= of->length_limit ? (int32_t)count : 0;
    if (count < 0) return 1;
    for (int32_t row = 0; row < rows; row++) {
        PyObject *number = PyList_GetItem(list, row);
        if (number == NULL) return 1;
        const reading had = read_number(number, &of->lengths[row]);
        if (had != READ) return refuse_length(had, list, row);
    }
    of->next->rows = count <= INT32_MAX ? (int32_t)count : INT32_MAX;
    return 0;
}

/* args: a bucket and, optionally, a list of lengths to write into the step. Returns 1 and sets a
 * Python error if an argument cannot be read. */
static int read_step(fig_steps *of, PyObject *const *args, ptrdiff_t count) {
    const reading had = read_number(args[0], &of->next->bucket);
    if (had != READ) return refuse_bucket(had, args[0]);
    return count > 1 && read_lengths(of, args[1]) != 0;
}

/* Calls the function. If it is NULL, calls launch, which takes no step. */
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

/* Makes a Python function; each returns a fig_status. */
FIG_API PyObject *fig_steps_function(int32_t which, PyObject *self);
PyObject *fig_steps_function(int32_t which, PyObject *self) {
    static python_method methods[] = {{"stage", stage, METH_FASTCALL, NULL},
                                      {"launch", launch, METH_FASTCALL, NULL},
                                      {"step", step, METH_FASTCALL, NULL}};
    return PyCFunction_NewEx(&methods[which], self, NULL);
}
