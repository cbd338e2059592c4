"""A second reader of .fig files, written from graphs/files/FORMAT.md alone.

It refuses every form that the page forbids, and returns the contents of the sections. It calls
zstd's decompressor through ctypes and uses nothing of the library.
"""
import ctypes
import hashlib
import re
import struct

MAGIC = bytes.fromhex("894649470d0a1a0a")
# for each name: the bytes of an item, the least and the largest number of items
SECTIONS = {
    "ENVR": (32, 1, 1), "SPEC": (1, 8, 4096), "STRS": (1, 1, 2**20), "TENS": (48, 0, 2**14),
    "NODE": (20, 0, 2**13), "OPND": (4, 0, 2**18), "ATTR": (1, 0, 2**22), "BUCK": (12, 1, 4096),
    "KERN": (64, 1, 64), "DIGS": (8, 1, 4096), "SEGM": (12, 1, 2**13), "VARI": (80, 1, 2**10),
    "SCOR": (16, 1, 9280),
    "META": (1, 1, 2**16), "IMAG": (64, 1, 2**8), "CODE": (1, 1, 2**25),
    "SIMG": (96, 1, 2**8), "SCOD": (1, 1, 2**24),
}
ANCILLARY = {"META", "IMAG", "CODE", "SIMG", "SCOD"}
OPTIONAL, DERIVED = {"SEGM", "VARI", "SCOR"} | ANCILLARY, {"KERN", "DIGS"} | ANCILLARY
DTYPES = {0: "none", 1: "f32", 2: "f16", 3: "bf16", 4: "e4m3", 5: "e5m2", 8: "i32", 9: "i64"}
ROLES, LAYOUTS = ["temp", "bound", "state"], ["nhd", "hnd"]
ACTIVATIONS = ["silu", "gelu", "gelu_tanh", "swiglu_limited"]
ROPE = ("interleaved:i rotary_dim:i theta:f scale:f llama3_factor:f llama3_low:f llama3_high:f "
        "llama3_context:i")
TURN = " ".join("rope." + field for field in ROPE.split()) + " norm_epsilon:f"
TABLE_BYTES, FREQUENCIES = 1032, 128
TABLES = {2, 10, 16}  # the operations whose attributes may end in a table
ATTENTION = "sm_scale:f soft_cap:f window:i"
LATENT = "sm_scale:f window:i"
NORM = "epsilon:f weight_offset:f"
OPERATIONS = {
    1: ("gated", "in out", "activation:i"),
    2: ("rope", "q k positions? indptr? offsets? cos_sin? q_norm? k_norm? q_out k_out", TURN),
    3: ("append_kv", "k v page_table? k_scale? v_scale? k_cache v_cache", ""),
    4: ("attention", "q k_cache v_cache page_table? k_scale? v_scale? sinks? alibi? out lse?",
        ATTENTION),
    5: ("plan", "lengths positions? query_starts?", ""),
    6: ("rms_norm", "in weight residual? out", NORM),
    7: ("merge_states", "out_a lse_a out_b lse_b out lse?", ""),
    10: ("decode_attention",
         "q k_cache v_cache page_table? k_scale? v_scale? sinks? alibi? out? lse? k v positions? "
         "cos_sin? q_norm? k_norm?", ATTENTION + " " + TURN),
    11: ("all_reduce", "in weight? residual? out", NORM),
    12: ("all_gather", "in out", ""),
    15: ("latent_attention", "q k_cache page_table? sinks? out lse? q_rope?", LATENT),
    16: ("latent_decode",
         "q k_cache page_table? sinks? out? lse? latent positions? cos_sin? norm? q_rope?",
         LATENT + " " + TURN),
    17: ("scored_attention",
         "q k_cache v_cache page_table? k_scale? v_scale? sinks? alibi? out lse? array0? array1? "
         "array2? array3? array4? array5? array6? array7?", ATTENTION + " score:i"),
}
CALL, FETCH = 64, 0
WORTH, SPEC_BYTES = 24, 2400
PACKED_BUCKET = 16  # bytes of a bucket where some bucket limits the query tokens


class Refused(Exception):
    pass


def must(holds, sentence):
    if not holds:
        raise Refused(sentence)


def decompress(frame, raw_bytes):
    zstd = ctypes.CDLL("libzstd.so.1")
    for name in ("ZSTD_findFrameCompressedSize", "ZSTD_decompress"):
        getattr(zstd, name).restype = ctypes.c_size_t
    zstd.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
    size = ctypes.c_size_t(len(frame))
    must(frame[:4] == bytes.fromhex("28b52ffd"), "no zstd frame")
    must(zstd.ZSTD_getFrameContentSize(frame, size) == raw_bytes, "another content size")
    must(zstd.ZSTD_findFrameCompressedSize(frame, size) == len(frame), "not one frame")
    raw = ctypes.create_string_buffer(raw_bytes + 1)
    done = zstd.ZSTD_decompress(raw, ctypes.c_size_t(raw_bytes), frame, size)
    must(done == raw_bytes, "the frame does not decode")
    return raw.raw[:raw_bytes]


def read_header(data):
    must(len(data) >= 72 and data[:8] == MAGIC, "magic")
    header = struct.unpack_from("<IIQII8s32s", data, 8)
    form, count, file_bytes, maker, features, check, content_id = header
    must(form == 1 and count <= 64 and file_bytes == len(data) <= 64 << 20, "header")
    must(72 + 40 * count <= len(data), "section_count")
    sealed = hashlib.sha256(data[:32] + bytes(8) + data[40:]).digest()[:8]
    must(check == sealed and features & 0xffff == 0, "check")
    return count, maker, content_id


def read_sections(data):
    """Returns the raw bytes of each known section, facts about the maker, and the content id."""
    count, maker, content_id = read_header(data)
    at, known, raw = 72 + 40 * count, list(SECTIONS), {}
    for i in range(count):
        name, flags, offset, stored, raw_bytes, item, reserved = struct.unpack_from(
            "<4sIQQQII", data, 72 + 40 * i)
        must(re.fullmatch(b"[A-Z0-9]{4}", name), "a section's name")
        name = name.decode("ascii")
        must(offset == at and stored <= len(data) - at and reserved == 0, name + ": place")
        at = (offset + stored + 7) // 8 * 8
        must(at <= len(data) and not any(data[offset + stored:at]), name + ": zeros")
        if name not in SECTIONS:
            must(flags == 1, name + ": unknown")
            continue
        while known and known[0] != name and known[0] in OPTIONAL:
            known.pop(0)
        must(known and known.pop(0) == name, name + ": order")
        width, least, most = SECTIONS[name]
        must(flags == (name in ANCILLARY), name + ": flags")
        if name == "BUCK" and item == PACKED_BUCKET:
            width = PACKED_BUCKET
        must(item == width and raw_bytes % width == 0, name + ": items")
        must(least <= raw_bytes // width <= most, name + ": limits")
        raw[name] = decompress(data[offset:offset + stored], raw_bytes)
    must(at == len(data) and set(known) <= OPTIONAL, "the end")
    asked = sum(len(held) for name, held in raw.items() if name not in ("CODE", "SCOD"))
    must(asked <= WORTH * len(data), "more than the file is worth")
    meaning = hashlib.sha256()
    for name in SECTIONS:
        if name in raw and name not in DERIVED:
            meaning.update(name.encode() + struct.pack("<Q", len(raw[name])) + raw[name])
    must(meaning.digest() == content_id, "content id")
    return raw, maker, content_id.hex()


def items(raw, form):
    return [row for row in struct.iter_unpack("<" + form, raw)]


def fields(raw, at, words):
    values = {}
    for word in words.split():
        name, form = word.split(":")
        values[name], = struct.unpack_from("<" + form, raw, at)
        at += struct.calcsize(form)
    return values


def text(strings, at):
    name = strings[at:strings.index(b"\0", at)]
    must(re.fullmatch(b"[A-Za-z0-9._-]{1,63}", name), "STRS: a name")
    return name.decode("ascii")


def read_table(raw, at):
    *frequencies, factor = struct.unpack_from("<%dd" % (FREQUENCIES + 1), raw, at)
    if not any(frequencies):
        return None
    return {"factor": factor, "frequencies": [f for f in frequencies if f]}


def read_spec(raw):
    must(struct.unpack_from("<I", raw)[0] == len(raw) <= SPEC_BYTES, "SPEC: size")
    must(len(raw) % 8 == 0 and any(raw[-8:]), "SPEC: the end")
    raw += bytes(SPEC_BYTES - len(raw))
    spec = fields(raw, 4, "dtype:I kv_dtype:I layers:i q_heads:i kv_heads:i head_dim:i ffn_width:i "
                          "activation:I page_size:i kv_layout:I kv_scales:i batch_limit:i "
                          "kv_limit:i sequence_limit:i row_tokens:i soft_cap:f window:i")
    for name, at in ("window_layers", 72), ("plain_layers", 200):
        bits = int.from_bytes(raw[at:at + 64], "little")
        spec[name] = [layer for layer in range(512) if bits >> layer & 1]
    spec.update(fields(raw, 136, "sm_scale:f qk_norm_epsilon:f"))
    spec["rope"] = fields(raw, 144, ROPE)
    spec["rope_table"] = read_table(raw, 264)
    if any(raw[1296:2376]):
        spec["window_rope"], spec["window_table"] = fields(raw, 1296, ROPE), read_table(raw, 1344)
    if any(raw[2376:2384]):
        spec["query_limit"], = struct.unpack_from("<q", raw, 2376)
    if any(raw[2384:2400]):
        spec.update(fields(raw, 2384, "latent_dim:i latent_norm_epsilon:f dense_layers:i "
                                      "dense_width:i"))
    spec["ffn_rows"], = struct.unpack_from("<i", raw, 192)
    spec["sinks"], = struct.unpack_from("<i", raw, 196)
    spec["dtype"], spec["kv_dtype"] = DTYPES[spec["dtype"]], DTYPES[spec["kv_dtype"]]
    spec["activation"] = ACTIVATIONS[spec["activation"]]
    spec["kv_layout"] = LAYOUTS[spec["kv_layout"]]
    return spec


def read_tensors(raw, strings):
    tensors = []
    for name, role, dtype, rank, symbol, layout, reserved, *dims in items(raw, "IBBBBB7s4q"):
        must(not any(reserved) and 1 <= rank <= 4 and dims[rank:] == [1] * (4 - rank), "TENS")
        shown = dims[:rank]
        tensor = {"name": text(strings, name), "role": ROLES[role], "dtype": DTYPES[dtype],
                  "layout": LAYOUTS[layout], "dims": shown}
        if symbol:
            tensor["multiple"] = dims[0]
            shown[0] = ["", "batch", "pages", "queries"][symbol]
        tensors.append(tensor)
    return tensors


def read_call(raw, at, strings, tensors, ids):
    tag, name, reads, count = struct.unpack_from("<QIII", raw, at)
    operands = [{"tensor": tensors[t - 1]["name"], "access": "read" if i < reads else "write"}
                for i, t in enumerate(ids)]
    return {"op": "call", "call": text(strings, name), "tag": hex(tag), "operands": operands,
            "bytes": raw[at + 24:at + 24 + count].hex()}


def read_nodes(raw, strings, tensors):
    nodes, next_operand, next_attribute = [], 0, 0
    all_operands = [t for t, in items(raw["OPND"], "I")]
    for op, layer, operand, count, attribute, attribute_bytes in items(raw["NODE"], "HhIIII"):
        must((operand, attribute) == (next_operand, next_attribute), "NODE: back to back")
        next_operand = operand + count
        next_attribute = (attribute + attribute_bytes + 7) // 8 * 8
        ids = all_operands[operand:next_operand]
        if op == CALL:
            node = read_call(raw["ATTR"], attribute, strings, tensors, ids)
        else:
            name, words, form = OPERATIONS[op]
            names = words.split()
            least = max(i + 1 for i, n in enumerate(names) if not n.endswith("?"))
            size = struct.calcsize("<" + "".join(w.split(":")[1] for w in form.split()))
            must(least <= count <= 32, "NODE: operands")
            must(size <= attribute_bytes <= 2048, "NODE: attributes")
            # Operands and attributes past a node's end count as absent or 0. Those that FORMAT.md
            # does not know must be absent or 0.
            ids += [0] * (len(names) - count)
            must(not any(ids[len(names):]), "NODE: an operand of a newer library")
            must(all(t or n.endswith("?") for t, n in zip(ids, names)), "NODE: absent")
            held = raw["ATTR"][attribute:attribute + attribute_bytes]
            known = (size + 7) // 8 * 8 + TABLE_BYTES if op in TABLES else size
            must(not any(held[known:]), "NODE: an attribute of a newer library")
            held += bytes(max(known - len(held), 0))
            attributes = fields(held, 0, form)
            table = read_table(held, known - TABLE_BYTES) if op in TABLES else None
            if table:
                attributes["table"] = table
            node = {"op": name, "attributes": attributes,
                    "operands": [{"name": n.rstrip("?"),
                                  "tensor": tensors[t - 1]["name"] if t else None}
                                 for t, n in zip(ids, names)]}
        nodes.append({**node, "layer": layer})
    must(next_operand == len(all_operands) and next_attribute == len(raw["ATTR"]), "NODE: the end")
    return nodes


def read_tuned(raw):
    return [{"machine": row[0].rstrip(b"\0").decode(), "variant": row[6].rstrip(b"\0").decode(),
             "values": row[1:6] + row[7:]} for row in items(raw, "16siiIii12s8i")]


def read_notes(raw):
    words = raw.decode("ascii").split("\0")
    must(words.pop() == "" and len(words) % 2 == 0, "META: the end")
    keys, values = words[::2], words[1::2]
    must(keys == sorted(set(keys)) and len(keys) <= 256, "META: keys")
    must(all(re.fullmatch("[A-Za-z0-9._-]{1,64}", key) for key in keys), "META: a key")
    must(all(re.fullmatch("[ -~]{0,4096}", value) for value in values), "META: a value")
    return dict(zip(keys, values))


def read_images(records, code):
    """Returns the recorded images by place. Images that the file holds must have the recorded
    hash."""
    images, at = {}, 0
    for op, capability, family, count, sha256 in items(records, "Ii16sQ32s"):
        family = family.rstrip(b"\0").decode("ascii")
        must(re.fullmatch("[a-z0-9_]{1,15}", family) and 1 <= count <= 2**25, "IMAG")
        images[op, family, capability] = sha256.hex()
        if code:
            must(hashlib.sha256(code[at:at + count]).digest() == sha256, "CODE: a hash")
        at += (count + 15) // 16 * 16
    must(list(images) == sorted(images), "IMAG: order")
    must(code is None or len(code) == at, "CODE: the end")
    return images


def read_compiled(records, code):
    """Returns the compiled scores, each of which must have the recorded hash. A list of trusted
    scores names the hashes of their records."""
    scores, order, at = [], [], 0
    must(bool(records) == bool(code), "SIMG and SCOD: both or neither")
    for i, (ptx, sha256, count, capability, driver, family) in enumerate(
            items(records, "32s32sQii16s")):
        record = records[96 * i:96 * i + 96]
        family = family.rstrip(b"\0").decode("ascii")
        must(re.fullmatch("[a-z0-9_]{1,15}", family) and 1 <= count <= 2**24, "SIMG")
        must(hashlib.sha256(code[at:at + count]).digest() == sha256, "SCOD: a hash")
        at += (count + 15) // 16 * 16
        must(not any(code[at - -count % 16:at]), "SCOD: zeros")
        order.append((ptx, capability, driver))
        scores.append({"family": family, "compute_capability": capability, "driver": driver,
                       "bytes": count, "sha256": hashlib.sha256(record).hexdigest()})
    must(order == sorted(set(order)), "SIMG: order")
    must(len(code) == at, "SCOD: the end")
    return scores


def read_buckets(raw):
    """Returns the buckets, which have a limit of query tokens where that of one is not 0."""
    digests = items(raw["DIGS"], "Q")
    is_packed = len(raw["BUCK"]) == PACKED_BUCKET * len(digests)
    rows = items(raw["BUCK"], "iiIi" if is_packed else "iiI")
    must(len(rows) == len(digests), "DIGS: one for each bucket")
    must(not is_packed or any(row[3] for row in rows), "BUCK: no limit of query tokens")
    order = [(row[0], row[1], row[3] or 1 << 31, row[2]) if is_packed else (row[0], row[1], row[2])
             for row in rows]
    must(order == sorted(order), "BUCK: order")
    return [{"batch": row[0], "kv": row[1], "variant": row[2], "made_digest": hex(digest),
             **({"queries": row[3]} if is_packed else {})}
            for row, (digest,) in zip(rows, digests)]


def read(data):
    """Returns the contents of a whole file. Raises Refused."""
    raw, maker, content_id = read_sections(data)
    strings = raw["STRS"]
    must(strings[0] == 0 == strings[-1], "STRS")
    tensors = read_tensors(raw["TENS"], strings)
    machine, capability, sms, shared, deterministic = struct.unpack("<16siiii", raw["ENVR"])
    return {
        "maker": maker, "content_id": content_id, "deterministic": bool(deterministic),
        "traits": {"name": machine.rstrip(b"\0").decode(), "compute_capability": capability,
                   "sm_count": sms, "shared_bytes": shared},
        "spec": read_spec(raw["SPEC"]), "tensors": tensors,
        "nodes": read_nodes(raw, strings, tensors),
        "segments": [{"name": text(strings, name), "node": node, "node_count": count}
                     for name, node, count in items(raw.get("SEGM", b""), "III")],
        "buckets": read_buckets(raw),
        "kernels": {name.rstrip(b"\0").decode(): op
                    for op, _, name, _ in items(raw["KERN"], "II24s32s")},
        "tuned": read_tuned(raw.get("VARI", b"")),
        "notes": read_notes(raw.get("META", b"")),
        "recorded": read_images(raw.get("IMAG", b""), raw.get("CODE")),
        "embedded": "CODE" in raw,
        "compiled_scores": read_compiled(raw.get("SIMG", b""), raw.get("SCOD", b"")),
    }
