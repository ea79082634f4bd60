"""A fake editor that drives the real server over stdio, and a scripted engine.

    async with ScriptedEngine(folder) as engine, Editor.started(VS_CODE, engine) as editor:
        engine.script(Text("def f():\n    return 2\n"))
        editor.open("a.py", "def f():\n    return 1\n")
        result = await editor.rewrite("return 2", (0, 4))
        await editor.accept(result["jobId"])
        assert editor.text == "def f():\n    return 2\n"

Leaving the block checks what must hold at the end of every session: no job is left, no
request is unanswered, no error or warning came that the test did not name by
`editor.expect(...)`, the editor's text model met no invalid position, and the server
ends with exit code 0.

The editor's text model is its own (`text_model`): it must not share code with the
server, or the same mistake would be in both.
"""
